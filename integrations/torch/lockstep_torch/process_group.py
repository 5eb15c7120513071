"""ProcessGroupLockstep: torch.distributed's calls as lockstep's.

Every call starts its operations at once and returns a LockstepWork; the ranks match collectives by the order of their start.
torch calls some of them by an older and some by a newer name, as its version goes. Whoever calls a group itself may give one tensor in
place of a list, and an operator or a root in place of options, as to torch's own groups.
"""
import re
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend

import lockstep

from . import sparse
from .alive import Alive
from .forms import as_list, as_lists, reduction_of, root_of
from .futures import Futures
from .leaving import Leaving
from .operators import operator_of
from .recorded import recorded
from .rendezvous import join
from .tensors import Flat, in_places
from .untraced import untraced
from .work import LockstepWork

_UNSET = timedelta(0)  # torch gives a negative time where the caller gave none


def create(options, _backend_options):
    """What torch.distributed calls for init_process_group("lockstep") and new_group()."""
    return ProcessGroupLockstep(options.store, options.group_rank, options.group_size, options.timeout)


@untraced
def _awaited(text):
    """The ranks for whom a call waited by its error, but those that, as that says, only wait for another."""
    waits = re.search("it waits for (.*)", text)
    one = r"rank \d+ \([^)]*\)"
    return re.findall(r"rank (\d+)", re.sub(f"{one}(, {one})*, which waits? for ", "", waits[1])) if waits else []


class ProcessGroupLockstep(dist.ProcessGroup):
    """A group of ranks whose tensors are in host memory."""

    # Before, torch splits only what has a device; and where this is true, makes every new_group() by a split.
    supports_splitting = torch.__version__ >= torch.torch_version.TorchVersion("2.15")

    def __init__(self, store, rank, size, timeout):
        super().__init__(rank, size)
        self._store = store
        self._timeout = timeout
        self._leaving = Leaving()
        self._of_callers = self._join("calls")
        self._of_callbacks = None
        self.futures = Futures()
        self._alive = Alive()
        self._past = LockstepWork(self, [], [])
        self._calls = 0
        self._name = self._description = ""

    # ---- reductions

    def allreduce(self, tensors, opts=None, op=None):
        tensors, opts = as_list(tensors), opts if op is None else op
        is_sparse = bool(tensors) and getattr(tensors[0], "layout", None) == torch.sparse_coo  # what is wrong is refused there
        return (self._sparse_allreduce if is_sparse else self.allreduce_coalesced)(tensors, opts)

    @recorded("all_reduce")
    def _sparse_allreduce(self, tensors, opts):
        with self._refusing("all_reduce"):
            own = sparse.summand(tensors[0], opts)
        return self._started([], [sparse.all_reduce(self, tensors[0], own)], [])

    @recorded("all_reduce")
    def allreduce_coalesced(self, tensors, opts=None):
        with self._refusing("all_reduce"):
            flats = in_places(tensors)
            choices = self._reduction(opts)
        parts = [self._communicator.all_reduce(flat, **choices) for flat in flats]
        return self._started(parts, tensors, flats)

    @recorded("reduce")
    def reduce(self, tensors, opts=None, op=None, root=None):
        tensors, root = as_list(tensors), root_of(opts, root)
        with self._refusing("reduce"):
            flat = Flat(tensors, reduces=True)
            choices = self._reduction(None if root is opts else opts, op)
            at_root = self.rank() == root
        part = self._communicator.reduce(flat, flat if at_root else None, root=root, **choices)
        return self._started([part], tensors, [flat] if at_root else [])

    @recorded("reduce_scatter")
    def reduce_scatter(self, output_tensors, input_tensors, opts=None, op=None):
        input_tensors, output_tensors = as_lists(input_tensors, output_tensors)
        with self._refusing("reduce_scatter"):
            source, target = Flat(input_tensors[0], reduces=True), Flat(output_tensors, reads=False, reduces=True)
            choices = self._reduction(opts, op)
        part = self._communicator.reduce_scatter_v(source, target, source.counts(), **choices)
        return self._started([part], output_tensors, [target])

    @recorded("reduce_scatter")
    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        with self._refusing("reduce_scatter"):
            sources = [Flat([tensor], reduces=True) for tensor in inputs]
            targets = [Flat([tensor], reads=False, reduces=True) for tensor in outputs]
            choices, pairs = self._reduction(opts), list(zip(sources, targets, strict=True))
        parts = [self._communicator.reduce_scatter(source, target, **choices) for source, target in pairs]
        return self._started(parts, outputs, targets)

    def _reduce_scatter_base(self, output, input, opts=None):  # pylint: disable=redefined-builtin
        return self.reduce_scatter_tensor_coalesced([output], [input], opts)

    # ---- movements

    @recorded("broadcast")
    def broadcast(self, tensors, opts=None, root=None):
        tensors, root = as_list(tensors), root_of(opts, root)
        with self._refusing("broadcast"):
            at_root = self.rank() == root
            flat = Flat(tensors, reads=at_root)
        part = self._communicator.broadcast(flat, root=root, **self._choices(opts))
        return self._started([part], tensors, [] if at_root else [flat])

    def allgather(self, output_tensors, input_tensors, opts=None):
        with self._refusing("all_gather"):
            output_tensors, input_tensors = as_lists(output_tensors, input_tensors)
            output_lists = [[tensor] for tensor in output_tensors[0]]
        return self.allgather_coalesced(output_lists, input_tensors, opts)

    @recorded("all_gather")
    def allgather_coalesced(self, output_lists, input_list, opts=None):
        """output_lists[r] takes the tensors of rank r."""
        with self._refusing("all_gather"):
            sources = [Flat([tensor]) for tensor in input_list]
            targets = [Flat(list(column), reads=False) for column in zip(*output_lists, strict=True)]
            pairs = list(zip(sources, targets, strict=True))
        parts = [self._communicator.all_gather_v(source, target, target.counts(), **self._choices(opts))
                 for source, target in pairs]
        return self._started(parts, [tensor for column in zip(*output_lists) for tensor in column], targets)

    @recorded("all_gather")
    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        with self._refusing("all_gather"):
            sources, targets = [Flat([tensor]) for tensor in inputs], [Flat([tensor], reads=False) for tensor in outputs]
            pairs = list(zip(sources, targets, strict=True))
        parts = [self._communicator.all_gather(source, target, **self._choices(opts)) for source, target in pairs]
        return self._started(parts, outputs, targets)

    def _allgather_base(self, output, input, opts=None):  # pylint: disable=redefined-builtin
        return self.allgather_into_tensor_coalesced([output], [input], opts)

    @recorded("gather")
    def gather(self, output_tensors, input_tensors, opts=None, root=None):
        output_tensors, input_tensors = as_lists(output_tensors, input_tensors)
        root = root_of(opts, root)
        with self._refusing("gather"):
            source, target = Flat(input_tensors), None
            if self.rank() == root:
                target = Flat(output_tensors[0], reads=False)
        part = self._communicator.gather_v(source, target, target and target.counts(), root=root, **self._choices(opts))
        return self._started([part], output_tensors[0] if target else [], [target] if target else [])

    def gather_single(self, output, input, opts):  # pylint: disable=redefined-builtin
        return self.gather([list(output.chunk(self.size()))] if self.rank() == opts.rootRank else [], [input], opts)

    @recorded("scatter")
    def scatter(self, output_tensors, input_tensors, opts=None, root=None):
        input_tensors, output_tensors = as_lists(input_tensors, output_tensors)
        root = root_of(opts, root)
        with self._refusing("scatter"):
            target, source = Flat(output_tensors, reads=False), None
            if self.rank() == root:
                source = Flat(input_tensors[0])
        part = self._communicator.scatter_v(source, source and source.counts(), target, root=root, **self._choices(opts))
        return self._started([part], output_tensors, [target])

    def alltoall(self, output_tensors, input_tensors, opts=None):
        with self._refusing("all_to_all"):
            source, target = Flat(input_tensors), Flat(output_tensors, reads=False)
        return self._all_to_all(source, source.counts(), target, target.counts(), output_tensors, opts)

    def alltoall_base(self, output, input, output_splits, input_splits, opts=None):  # pylint: disable=redefined-builtin
        """Splits are rows; where there are none, every rank gets equally many."""
        with self._refusing("all_to_all"):
            source, target = Flat([input]), Flat([output], reads=False)
            sent, received = self._rows(input, source, input_splits), self._rows(output, target, output_splits)
        return self._all_to_all(source, sent, target, received, [output], opts)

    @recorded("all_to_all")
    def _all_to_all(self, source, sent, target, received, outputs, opts):
        part = self._communicator.all_to_all_v(source, sent, target, received, **self._choices(opts))
        return self._started([part], outputs, [target])

    def _rows(self, tensor, flat, splits):
        if not splits:
            if tensor.size(0) % self.size():
                raise ValueError(f"{tensor.size(0)} rows cannot be divided among {self.size()} ranks: give split sizes")
            splits = [tensor.size(0) // self.size()] * self.size()
        row = tensor.numel() // tensor.size(0) if tensor.size(0) else 0
        return [flat.elements(rows * row) for rows in splits]

    # ---- messages

    @recorded("send")
    def send(self, tensors, destination, tag=0):
        part = self._communicator.send(Flat(tensors), destination, tag, **self._choices(None))
        return self._started([part], tensors, [], collective=False)

    @recorded("recv")
    def recv(self, tensors, source, tag=0):
        flat = Flat(tensors)  # with its values: a message may be shorter, and leaves the others as they are
        part = self._communicator.recv(flat, source, tag, **self._choices(None))
        return self._started([part], tensors, [flat], collective=False)

    def recv_anysource(self, tensors, tag=0):
        return self.recv(tensors, lockstep.ANY_SOURCE, tag)

    # ---- barriers

    @recorded("barrier")
    def barrier(self, opts=None):
        """Returns when all ranks have called it, and what this rank started before has ended."""
        before = self._alive.collectives()
        part = self._communicator.barrier(**self._choices(opts))
        return self._started([part], [], [], after=before)

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """A barrier whose error says who is missing, as that of every call does; here in the words that Gloo has for it."""
        limit = (timeout or self._timeout).total_seconds() if timeout != _UNSET else 0
        with self._refusing("barrier"):
            if limit <= 0:
                raise RuntimeError(f"Rank {self.rank()} timed out in monitoredBarrier: it was given no time")
        try:
            self._communicator.barrier(timeout=limit)
        except lockstep.Error as error:
            missing = _awaited(str(error)) or ([str(error.culprit)] if error.culprit >= 0 else [])
            if not wait_all_ranks:
                missing = missing[:1]
            who = f"Rank{'s' if len(missing) > 1 else ''} {', '.join(missing)}" if missing else "A rank"
            raise RuntimeError(f"{who} failed to pass monitoredBarrier in {int(limit * 1000)} ms\n{error}") from error

    # ---- names of other versions of torch

    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base
    gather_into_tensor = gather_single

    # ---- life

    def split_group(self, ranks, timeout=None, opts=None, group_name="", group_desc="", device_types=None):
        """The group of `ranks` of this one, in their order; None where this rank is not among them. Blocks until they are there."""
        del opts, device_types  # There is nothing to choose.
        if self.rank() not in ranks:
            return None
        part = ProcessGroupLockstep(dist.PrefixStore(group_name, self._store), ranks.index(self.rank()), len(ranks),
                                    timeout or self._timeout)
        part.setGroupName(group_name)
        part.setGroupDesc(group_desc)
        return part

    def eager_connect_single_device(self, device):
        """What torch asks of groups that can be split: a new one is connected as it is."""

    def abort(self):
        """Ends all operations, here and on the peers, and the group with them."""
        self.futures.close()
        self._leaving("the process group was aborted")

    def shutdown(self):
        """The orderly end, which waits for the other ranks; torch calls it for destroy_process_group(), which often stands in a
        `finally`."""
        self.futures.close()
        self._leaving.leave()

    def set_timeout(self, timeout):
        self._timeout = timeout

    _set_default_timeout = set_timeout

    # What torch's C++ asks of a group, by its own names.
    # pylint: disable=invalid-name

    def getBackendName(self):
        return "lockstep"

    def setGroupName(self, name):
        self._name = name

    def getGroupName(self):
        return self._name

    def setGroupDesc(self, description):
        self._description = description

    def getGroupDesc(self):
        return self._description

    # By these torch asks in Python; 2.4 would look for the name in a backend, which this group has not.
    group_name, group_desc = property(getGroupName), property(getGroupDesc)
    _set_group_name, _set_group_desc = setGroupName, setGroupDesc

    # pylint: enable=invalid-name

    @property
    def options(self):
        return Backend.Options("lockstep", self._timeout)

    def get_group_store(self):
        return self._store

    @property
    def _device_types(self):
        return [torch.device("cpu")]

    def _get_backend(self, _device):
        return self

    get_backend = _get_backend

    def _get_sequence_number_for_group(self):
        return self._calls

    def forget(self, work):
        """For LockstepWork: its outcome is known to whoever asked."""
        self._alive.forget(work)

    # ---- inside

    @property
    def _communicator(self):
        """Futures tells why callbacks have one of their own, which is made when they first need it."""
        if not self.futures.is_current_thread():
            return self._of_callers
        if self._of_callbacks is None:
            self._of_callbacks = self._join("callbacks")
        return self._of_callbacks

    def _join(self, purpose):
        communicator, place = join(dist.PrefixStore(purpose, self._store), self.rank(), self.size(), self._timeout)
        self._leaving.add(communicator, place)
        return communicator

    def _choices(self, opts):
        timeout = getattr(opts, "timeout", _UNSET)
        # Newer versions of torch say whether the caller waits at once: the library has a shorter way then.
        return {"timeout": (timeout if timeout > _UNSET else self._timeout).total_seconds(),
                "wait": not getattr(opts, "asyncOp", True)}

    def _reduction(self, opts, op=None):
        operator, scale = operator_of(reduction_of(opts, op))
        return {"op": operator, "scale": scale, **self._choices(opts)}

    def _refusing(self, collective):
        return self._communicator._refusal(collective)  # pylint: disable=protected-access

    def _started(self, parts, outputs, flats, after=(), collective=True):
        """What the call returns. `parts` are Works, or None where the calls have waited."""
        copied = [flat for flat in flats if flat.is_copy]
        self._calls += 1
        if parts and parts[0] is None:
            for flat in copied:
                flat.store()
            for work in after:
                work.wait()
            return self._past
        work = LockstepWork(self, parts, list(outputs), copied, after, collective)
        self._alive.add(work)
        return work
