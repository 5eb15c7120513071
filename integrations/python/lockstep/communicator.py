"""Communicator: a group of ranks and the collectives among them, on NumPy arrays and other buffers.

Conventions are those of <lockstep/communicator.hpp>: all ranks call the same collectives in the same order; a difference, a lost
rank and a deadline are errors that name who and why on every rank. Arrays are used where they lie, without a copy. Each call blocks;
with wait=False it returns a Work at once, and its arrays belong to the library until that is done.
"""
import contextlib
import functools
import weakref
from ctypes import byref, c_int, c_size_t, c_void_p

from ._library import Init, Options, library
from .arguments import MOST_SIZE, message, milliseconds, real_number, text, whole_number
from .buffers import Buffer
from .errors import Error
from .handles import CommunicatorHandle, WorkHandle
from .types import ReduceOp
from .work import Received, Work

ANY_SOURCE = -1
ANY_TAG = -1


@functools.lru_cache  # the same few again and again, and a struct of ctypes costs as much as a small call
def _options(timeout=None, priority=0, algorithm=None, scale=1.0, **unknown):
    """Options of one call. timeout: seconds from its start, 0 = none, None = LOCKSTEP_TIMEOUT; the others as CallOptions says."""
    if unknown:
        raise TypeError(f"unexpected keyword argument {next(iter(unknown))!r}: the options of a call are timeout, priority, "
                        "algorithm, scale")
    limit = -1 if timeout is None else milliseconds(timeout)
    return Options(limit, whole_number(priority, "priority"), text(algorithm, "algorithm"),
                   real_number(scale, "scale"))


class Communicator:
    """A group of ranks. `with` ends it: in order after success, and by an abort that tells the peers why after an exception."""

    def __init__(self, handle):
        self._handle = CommunicatorHandle(handle)
        self._still = weakref.ref(self._handle)  # A call may need it longer than this does.
        self._rank = library.lockstep_rank(self._handle)
        self._size = library.lockstep_size(self._handle)

    @classmethod
    def create(cls, rank=None, world_size=None, rendezvous=None, job_id=None, secret=None, timeout=None, transports=None):
        """Joins the group that the arguments describe; what is not given comes from the environment, as InitOptions in
        <lockstep/communicator.hpp> says: lockstep-run, torchrun, mpirun, srun. Blocks until all ranks are there. timeout: seconds,
        0 = none, None = LOCKSTEP_START_TIMEOUT."""
        if (rank is None) != (world_size is None):
            raise ValueError("give rank and world_size together, or neither")
        init = Init(rank is not None, whole_number(rank or 0, "rank"), whole_number(world_size or 0, "world_size"),
                    text(rendezvous, "rendezvous"), text(job_id, "job_id"), text(secret, "secret"),
                    0 if timeout is None else milliseconds(timeout) or -1, text(transports, "transports"))
        handle = c_void_p()
        library.lockstep_create(byref(init), byref(handle))
        return cls(handle.value)

    @classmethod
    def local_group(cls, n, transports=None):
        """`n` ranks in this process, for one thread each; element r is rank r."""
        handles = (c_void_p * whole_number(n, "n", least=0))()
        library.lockstep_local_group(n, text(transports, "transports"), handles)
        return [cls(handle) for handle in handles]

    @property
    def rank(self):
        return self._rank

    @property
    def size(self):
        return self._size

    @property
    def usable(self):
        """False once the communicator was revoked: an error, an abort, its end."""
        handle = self._handle
        return handle is not None and library.lockstep_state(handle) == 0

    def describe(self):
        """One line: "rank 3 of 8 on host-2, transport shm+tcp, ranks from torchrun"."""
        return library.lockstep_describe(self._open()).decode()

    def __repr__(self):
        return "<lockstep.Communicator, closed>" if self._handle is None else f"<lockstep.Communicator, {self.describe()}>"

    # ---- collectives

    def all_reduce(self, data, output=None, op="sum", wait=True, **choices):
        """output[i] = op over ranks of data[i]; in place where no output is given."""
        with self._refusal("all_reduce"):
            source, target = self._pair(data, output)
            _same(source, target, source.count)
            op = ReduceOp.of(op)
        return self._run("all_reduce", (source, target), wait, choices, source.address, target.address, source.count,
                         source.type, op)

    def reduce(self, data, output=None, op="sum", root=0, wait=True, **choices):
        """As all_reduce, the result only at `root`; elsewhere output is ignored."""
        with self._refusal("reduce"):
            root = whole_number(root, "root")
            source, target = self._pair(data, output, at_root=self._rank == root)
            if self._rank == root:
                _same(source, target, source.count)
            op = ReduceOp.of(op)
        return self._run("reduce", (source, target), wait, choices, source.address, target.address, source.count, source.type, op,
                         root)

    def broadcast(self, data, root=0, wait=True, **choices):
        """Root's data are copied to every rank's."""
        with self._refusal("broadcast"):
            root = whole_number(root, "root")
            buffer = Buffer.of(data, writable=self._rank != root)
        return self._run("broadcast", (buffer,), wait, choices, buffer.address, buffer.count, buffer.type, root)

    def scatter(self, data, output, root=0, wait=True, **choices):
        """Rank r gets the r-th part of root's data, which are as long as all outputs together; elsewhere data may be None."""
        with self._refusal("scatter"):
            root = whole_number(root, "root")
            target = Buffer.of(output, writable=True)
            source = Buffer.of(data, writable=False) if self._rank == root else _nothing(target)
            if self._rank == root:
                _same(target, source, target.count * self._size)
        return self._run("scatter", (source, target), wait, choices, source.address, target.address, target.count, target.type,
                         root)

    def gather(self, data, output=None, root=0, wait=True, **choices):
        """Root gets the data of all ranks, one after the other; elsewhere output may be None."""
        with self._refusal("gather"):
            root = whole_number(root, "root")
            source = Buffer.of(data, writable=False)
            target = Buffer.of(output, writable=True) if self._rank == root else _nothing(source)
            if self._rank == root:
                _same(source, target, source.count * self._size)
        return self._run("gather", (source, target), wait, choices, source.address, target.address, source.count, source.type,
                         root)

    def all_gather(self, data, output, wait=True, **choices):
        """Every rank gets the data of all ranks, one after the other."""
        with self._refusal("all_gather"):
            source, target = self._pair(data, output)
            _same(source, target, source.count * self._size)
        return self._run("all_gather", (source, target), wait, choices, source.address, target.address, source.count, source.type)

    def reduce_scatter(self, data, output, op="sum", wait=True, **choices):
        """Rank r gets the reduction of the r-th parts of all ranks' data."""
        with self._refusal("reduce_scatter"):
            source, target = self._pair(data, output)
            _same(target, source, target.count * self._size)
            op = ReduceOp.of(op)
        return self._run("reduce_scatter", (source, target), wait, choices, source.address, target.address, target.count,
                         target.type, op)

    def all_to_all(self, data, output, wait=True, **choices):
        """The r-th part of data goes to rank r, and the r-th part of output comes from rank r."""
        with self._refusal("all_to_all"):
            source, target = self._pair(data, output)
            _same(source, target, source.count)
            if source.count % self._size:
                raise ValueError(f"{source.count} elements cannot be divided among {self._size} ranks")
        return self._run("all_to_all", (source, target), wait, choices, source.address, target.address,
                         source.count // self._size, source.type)

    def barrier(self, wait=True, **choices):
        """Returns when every rank has called it."""
        return self._run("barrier", (), wait, choices)

    # ---- with counts that differ by rank

    def scatter_v(self, data, counts, output, root=0, wait=True, **choices):
        """As scatter, with counts[r] elements for rank r; data and counts are read at root only."""
        with self._refusal("scatter_v"):
            root = whole_number(root, "root")
            target = Buffer.of(output, writable=True)
            source = Buffer.of(data, writable=False) if self._rank == root else _nothing(target)
            _same_type(source, target)
            shares = self._shares(counts, source, self._rank == root)
        return self._run("scatter_v", (source, target, shares), wait, choices, source.address, shares, target.address,
                         target.count, target.type, root)

    def gather_v(self, data, output=None, counts=None, root=0, wait=True, **choices):
        """As gather, with counts[r] elements of rank r; output and counts are read at root only."""
        with self._refusal("gather_v"):
            root = whole_number(root, "root")
            source = Buffer.of(data, writable=False)
            target = Buffer.of(output, writable=True) if self._rank == root else _nothing(source)
            _same_type(source, target)
            shares = self._shares(counts, target, self._rank == root)
        return self._run("gather_v", (source, target, shares), wait, choices, source.address, source.count, target.address,
                         shares, source.type, root)

    def all_gather_v(self, data, output, counts, wait=True, **choices):
        """As all_gather, with counts[r] elements of rank r; counts are equal on all ranks."""
        with self._refusal("all_gather_v"):
            source, target = self._pair(data, output)
            shares = self._shares(counts, target)
            _same(target, source, shares[self._rank])
        return self._run("all_gather_v", (source, target, shares), wait, choices, source.address, target.address, shares,
                         source.type)

    def reduce_scatter_v(self, data, output, counts, op="sum", wait=True, **choices):
        """As reduce_scatter, with counts[r] elements for rank r; counts are equal on all ranks."""
        with self._refusal("reduce_scatter_v"):
            source, target = self._pair(data, output)
            shares = self._shares(counts, source)
            _same(source, target, shares[self._rank])
            op = ReduceOp.of(op)
        return self._run("reduce_scatter_v", (source, target, shares), wait, choices, source.address, target.address, shares,
                         source.type, op)

    def all_to_all_v(self, data, send_counts, output, recv_counts, wait=True, **choices):
        """send_counts[r] elements of data go to rank r, recv_counts[r] of output come from it."""
        with self._refusal("all_to_all_v"):
            source, target = self._pair(data, output)
            sent, received = self._shares(send_counts, source), self._shares(recv_counts, target)
            if source.type != target.type:
                raise ValueError(f"data are {source.type.name}, output is {target.type.name}")
        return self._run("all_to_all_v", (source, target, sent, received), wait, choices, source.address, sent, target.address,
                         received, source.type)

    # ---- point to point

    def send(self, data, destination, tag=0, wait=True, **choices):
        """Sends data; messages between two ranks with one tag arrive in order. Of a wrong call the peer hears nothing."""
        buffer = Buffer.of(data, writable=False)
        return self._run("send", (buffer,), wait, choices, buffer.address, buffer.count, buffer.type,
                         whole_number(destination, "destination"), whole_number(tag, "tag"))

    def recv(self, data, source=ANY_SOURCE, tag=ANY_TAG, wait=True, **choices):
        """Receives into data, at most as much as it holds. Returns Received, or with wait=False a Work whose wait() does."""
        buffer = Buffer.of(data, writable=True)
        work = None if wait else WorkHandle()
        sender, its_tag, count = c_int(), c_int(), c_size_t()
        library.lockstep_recv(self._open(), buffer.address, buffer.count, buffer.type, whole_number(source, "source"),
                              whole_number(tag, "tag"), _chosen(choices), byref(sender), byref(its_tag), byref(count),
                              None if wait else byref(work))
        if wait:
            return Received(sender.value, its_tag.value, count.value)
        return Work(work, self, buffer, receives=True)

    # ---- life

    def split(self, color, key=0):
        """A new communicator of the ranks that gave the same color, ordered by (key, rank); None for a negative color. Blocks."""
        with self._refusal("all_gather"):  # as which it begins
            color, key = whole_number(color, "color"), whole_number(key, "key")
        part = c_void_p()
        library.lockstep_split(self._open(), color, key, byref(part))
        return Communicator(part.value) if part else None

    def abort(self, reason=None):
        """Ends every operation, here and on the peers, and says why. From any thread; at once."""
        library.lockstep_abort(self._open(), message(reason))

    def finalize(self):
        """The orderly end: waits for the collectives under way and for all ranks."""
        library.lockstep_finalize(self._open())
        self.close()

    def close(self):
        """Lets go of the group without a word to the peers but that this rank has left. Waits for nobody; a call that blocks in
        another thread goes on, and this rank leaves with its end (abort() ends it)."""
        self._handle = None

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _traceback):
        if self._handle is None:  # was ended by hand
            return
        if kind is None:
            self.finalize()
        else:
            self.abort(f"rank {self._rank} ended by {kind.__name__}: {error}")
            self.close()

    # ---- inside

    def _open(self):
        handle = self._handle
        if handle is None:
            raise ValueError("this communicator is closed")
        return handle

    def _run(self, name, buffers, wait, choices, *arguments):
        call = getattr(library, "lockstep_" + name)
        options = None
        if choices:
            with self._refusal(name):
                options = _chosen(choices)
        if wait:
            call(self._open(), *arguments, options, None)
            return None
        work = WorkHandle()
        call(self._open(), *arguments, options, byref(work))
        return Work(work, self, buffers)

    def _keep(self, work, buffers):
        """Of a Work that was dropped. Without a communicator nobody uses the buffers any more."""
        handle = self._still()
        if handle is not None:
            handle.keep(work, buffers)

    def _refusal(self, collective):
        return _Refusal(self, collective)

    def _pair(self, data, output, at_root=True):
        source = Buffer.of(data, writable=output is None and at_root)
        if not at_root:
            return source, _nothing(source)
        return source, source if output is None else Buffer.of(output, writable=True)

    def _shares(self, counts, whole, needed=True):
        if not needed:
            return None
        if not hasattr(counts, "__iter__"):
            raise TypeError(f"counts are {counts!r}, and must be {self._size} whole numbers")
        counts = [whole_number(count, "a count", most=MOST_SIZE) for count in counts]
        if len(counts) != self._size or min(counts) < 0 or sum(counts) != whole.count:
            raise ValueError(f"{self._size} counts are needed, and their sum must be the {whole.count} elements of the buffer: "
                             f"{counts}")
        return (c_size_t * self._size)(*counts)


class _Refusal:
    """What is found wrong with a call in here is told to the peers, which would wait for this rank."""
    __slots__ = ("_communicator", "_collective")

    def __init__(self, communicator, collective):
        self._communicator = communicator
        self._collective = collective

    def __enter__(self):
        pass

    def __exit__(self, _kind, problem, _traceback):
        if isinstance(problem, Exception):
            with contextlib.suppress(Error):
                handle = self._communicator._open()  # pylint: disable=protected-access
                library.lockstep_refuse(handle, self._collective.encode(), message(problem))


def _nothing(like):
    return Buffer(None, 0, like.type, None)


def _same_type(one, other):
    if one.type != other.type:
        raise ValueError(f"data and output differ in type: {one.type.name} and {other.type.name}")


def _same(part, whole, count):
    _same_type(part, whole)
    if whole.count != count:
        raise ValueError(f"data and output do not fit: beside the {part.count} elements of one the other must have {count} elements "
                         f"and has {whole.count}")


def _chosen(choices):
    return byref(_options(**choices)) if choices else None
