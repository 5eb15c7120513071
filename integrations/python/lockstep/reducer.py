"""Reducer: averages gradients over all ranks while backward runs.

Contracts and errors are those of <lockstep/ddp/reducer.hpp>, which docs/ddp.md explains.
"""
import contextlib
import ctypes
import math
import types
from ctypes import byref, c_double, c_int, c_size_t, c_void_p

from ._library import Parameter, ReducerOptions, library
from .arguments import MOST_ADDRESS, MOST_SIZE, real_number, text, whole_number
from .buffers import Buffer
from .handles import ReducerHandle

_ALL_GRADIENTS = MOST_ADDRESS


class Reducer:
    """Averages the gradients of `parameters` (name: array) over all ranks. Collective; rank 0's values go to all.

        reducer = lockstep.Reducer(ranks, {"weight": weight, "bias": bias})
        for batch in batches:
            backward(batch, reducer.gradients, reducer.mark_ready)   # mark_ready("bias") when gradients["bias"] is complete
            reducer.wait()
            weight -= rate * reducer.gradients["weight"]

    `gradients[name]` is an array in memory that travels without a copy, zero at first; write into it, it cannot be replaced. It is
    valid as long as anybody holds it. Who has gradients of its own gives them as `gradients`: they are averaged where they lie. The
    order of `parameters`, equal on all ranks, is that of the forward. The other options are those of ReducerOptions.
    """

    def __init__(self, communicator, parameters, gradients=None, *, bucket_bytes=0, first_bucket_bytes=0, average=True,
                 weighted=False, find_unused=False, static_graph=False, check_finite=False, check_first=None, undo=True,
                 check_replicas_every=0, hook=None, overlap_forward=False):
        with communicator._refusal("all_gather"):  # as which it begins  pylint: disable=protected-access
            values, own, described = _described(parameters, gradients)
            options = ReducerOptions(
                whole_number(bucket_bytes, "bucket_bytes", least=0, most=MOST_SIZE),
                whole_number(first_bucket_bytes, "first_bucket_bytes", least=0, most=MOST_SIZE), own is not None, not average,
                bool(weighted), bool(find_unused), bool(static_graph), bool(check_finite),
                0 if check_first is None else 1 if check_first else -1, not undo,
                whole_number(check_replicas_every, "check_replicas_every", least=0, most=MOST_SIZE), text(hook, "hook"),
                bool(overlap_forward))
        handle = c_void_p()
        library.lockstep_reducer_create(communicator._open(), described, len(values),  # pylint: disable=protected-access
                                        byref(options), byref(handle))
        self._handle = ReducerHandle(handle.value, (values, own))
        self._numbers = {name: i for i, name in enumerate(values)}
        self._pauses = 0
        # Read only: an array put in the place of one here would never travel.
        self.gradients = types.MappingProxyType(dict(gradients) if own is not None else {
            name: self._view(i, parameters[name], value) for i, (name, value) in enumerate(values.items())})

    def mark_ready(self, parameter):
        """The gradient of `parameter` (its name, or its place) is complete: leave it alone until wait(). From any thread."""
        library.lockstep_reducer_mark_ready(self._open(), self._number(parameter))

    def mark_unused(self, parameter):
        """This step has no gradient for it on this rank, with find_unused."""
        library.lockstep_reducer_mark_unused(self._open(), self._number(parameter))

    def wait(self):
        """Ends the step: all gradients are averaged, and every rank's step is known to be good."""
        library.lockstep_reducer_wait(self._open())

    def wait_gradients(self, parameter=None):
        """With overlap_forward, after wait(): before the gradient, or any, is read."""
        library.lockstep_reducer_wait_gradients(self._open(), _ALL_GRADIENTS if parameter is None else self._number(parameter))

    def average(self, gradients):
        """A whole step for who gets all gradients at once: copies them in, marks them, waits for all. Returns self.gradients, which
        the next step changes. Of what is left out (with find_unused) this rank has none. What does not fit is refused before the
        step begins."""
        import numpy  # pylint: disable=import-outside-toplevel
        places, fitting = {}, {}
        for name, gradient in gradients.items():
            self._number(name)
            places[name], gradient = numpy.asarray(self.gradients[name]), numpy.asarray(gradient)
            if gradient.shape != places[name].shape:
                raise ValueError(f"the gradient of {name!r} has the shape {gradient.shape} and the parameter {places[name].shape}")
            if not numpy.can_cast(gradient.dtype, places[name].dtype, "same_kind"):
                raise TypeError(f"the gradient of {name!r} is of {gradient.dtype} and the parameter of {places[name].dtype}")
            fitting[name] = gradient
        self.wait_gradients()  # Of the step before.
        for name, gradient in fitting.items():
            numpy.copyto(places[name], gradient, casting="same_kind")
            self.mark_ready(name)
        self.wait()
        self.wait_gradients()
        return self.gradients

    @contextlib.contextmanager
    def no_sync(self):
        """Gradients stay on this rank in here, for accumulation: around all micro-batches but the last."""
        handle = self._open()
        if self._pauses == 0:  # C knows one at a time.
            library.lockstep_reducer_no_sync(handle, 1)
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1
            if self._pauses == 0:
                library.lockstep_reducer_no_sync(handle, 0)

    def begin_step(self, samples):
        """Collective, before each step, where ranks have different numbers of batches: whether the step goes on. samples: of this
        rank's batch, 0 when it has no more."""
        goes_on = c_int()
        library.lockstep_reducer_begin_step(self._open(), whole_number(samples, "samples", least=0, most=MOST_SIZE), byref(goes_on))
        return bool(goes_on)

    def clip(self, max_norm):
        """Scales all gradients where their global L2 norm is above max_norm; returns the norm that they had. After wait()."""
        norm = c_double()
        library.lockstep_reducer_clip(self._open(), real_number(max_norm, "max_norm"), byref(norm))
        return norm.value

    def report(self):
        """Where the last step's time went, in one sentence."""
        return library.lockstep_reducer_report(self._open()).decode()

    def close(self):
        """The end, between steps; in the midst of one it aborts the communicator, once no array of `gradients` is held elsewhere:
        those remain, and the reducer with them."""
        self._handle, self.gradients = None, types.MappingProxyType({})

    # ---- inside

    def _open(self):
        handle = self._handle
        if handle is None:
            raise ValueError("this reducer is closed")
        return handle

    def _number(self, parameter):
        if isinstance(parameter, str):
            if parameter not in self._numbers:
                raise ValueError(f"no parameter is called {parameter!r}: {', '.join(self._numbers)}")
            return self._numbers[parameter]
        return whole_number(parameter, "parameter", least=0)

    def _view(self, number, like, value):
        """The gradient in its bucket, as an array of the kind of its parameter."""
        address = c_void_p()
        library.lockstep_reducer_gradient(self._open(), number, byref(address))
        memory = (ctypes.c_char * (value.count * library.lockstep_type_size(value.type))).from_address(address.value)
        memory.owner = self._handle  # The buckets live as long as a view of them.
        if hasattr(like, "dtype"):
            import numpy  # pylint: disable=import-outside-toplevel
            return numpy.frombuffer(memory, like.dtype, value.count).reshape(like.shape)
        like = memoryview(like)
        view = memoryview(memory).cast("B").cast(like.format.lstrip("@=<"))  # ctypes says "<f"
        return view if like.ndim == 1 else view.cast("B").cast(view.format, like.shape)


def _shape(array):
    if isinstance(array, Buffer):
        return (array.count,)
    return tuple(array.shape if hasattr(array, "dtype") else memoryview(array).shape)


def _buffers(what, arrays):
    """By name; the error is of the one that cannot be used."""
    buffers = {}
    for name, array in arrays.items():
        try:
            buffers[name] = Buffer.of(array, writable=True)
        except ValueError as problem:
            raise ValueError(f"{what} {name!r}: {problem}") from None
    return buffers


def _described(parameters, gradients):
    """The values' buffers by name, those of the gradients that the caller keeps, and both as C knows them."""
    if not hasattr(parameters, "items"):
        raise TypeError(f"parameters are {type(parameters).__name__}, and must be a dict of arrays by their names")
    if gradients is not None and not hasattr(gradients, "items"):
        raise TypeError(f"gradients are {type(gradients).__name__}, and must be a dict of arrays by the names of the parameters")
    values = _buffers("parameter", parameters)
    own = None if gradients is None else _buffers("the gradient of", gradients)
    if own is not None and set(own) != set(values):
        raise ValueError(f"gradients are those of {', '.join(own)}, and must be those of {', '.join(values)}")
    described = (Parameter * len(values))()
    for c, (name, value) in zip(described, values.items()):
        shape = _shape(parameters[name])
        if own is not None and (own[name].type, own[name].count) != (value.type, math.prod(shape)):
            raise ValueError(f"the gradient of {name!r} differs from the parameter in type or size")
        c.name, c.type, c.value = text(name, "a name"), value.type, value.address
        c.shape, c.dimensions = (c_size_t * max(len(shape), 1))(*shape), len(shape)
        c.gradient = None if own is None else own[name].address
    return values, own, described
