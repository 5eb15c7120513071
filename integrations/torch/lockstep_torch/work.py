"""The Work that calls return."""
import threading
import time
from datetime import timedelta

import torch
from torch._C._distributed_c10d import Work

from .untraced import untraced

_NO_LIMIT = timedelta(0)


class StillRunning(TimeoutError, RuntimeError):
    """Of a wait() whose time has passed: what Python calls it, and what programs catch of PyTorch's own backends."""


@untraced
class LockstepWork(Work):
    """The operations of one call of torch.distributed, which end together.

    `parts` are Works of lockstep in the order of their start. Whoever finds that all have ended writes `copies` back to the
    tensors. `after` are calls that have to have ended, too.
    """

    def __init__(self, group, parts, outputs, copies=(), after=(), collective=True):
        super().__init__()
        self._group = group
        self._parts = parts
        self._outputs = outputs
        self._copies = copies
        self._after = after
        self.collective = collective
        self.awaited = False  # by the program
        self._ended = False
        self._error = None
        self._received = None
        self._future = None
        self._recorded = None  # completed at the end, where a profiler looks
        self._lock = threading.Lock()  # one thread at a time drives the parts

    def wait(self, timeout=_NO_LIMIT):
        """Blocks until the operation has ended, in the caller's thread, which then drives it; raises its error."""
        end = time.monotonic() + timeout.total_seconds() if timeout > _NO_LIMIT else None
        try:
            return self._outcome(end)
        except TimeoutError:
            raise StillRunning(f"the operation still runs after {timeout.total_seconds():g} s, and goes on") from None
        finally:
            self.awaited = self._ended
            if self._future is not None:
                self._future.awaited = self._ended

    def is_completed(self):
        if not self._ended and self._lock.acquire(blocking=False):
            try:
                if all(part.done() for part in self._parts) and all(work.is_completed() for work in self._after):
                    self._end(None)
            finally:
                self._lock.release()
        return self._ended

    def is_success(self):
        return self.is_completed() and self._error is None

    def exception(self):
        return self._error if self.is_completed() else None

    def synchronize(self):
        self.wait()

    def result(self):
        return self._outputs

    def source_rank(self):
        if self._received is None:
            raise RuntimeError("only a receive that has ended has a source")
        return self._received.source

    _source_rank = source_rank

    def get_future(self):
        """Completed with the list of outputs when the operation has ended."""
        if self._future is None:
            self._future = self._group.futures.future_of(self)
        return self._future

    def keep_open(self, record):
        """A profiler's record of the call ends when the operation does."""
        with self._lock:
            if not self._ended:
                self._recorded = torch.futures.Future()
                record._call_end_callbacks_on_future(self._recorded)  # pylint: disable=protected-access

    def settle(self, future):
        """For Futures: waits, and hands the outcome to the future."""
        try:
            self._outcome(None)
        except Exception as error:  # pylint: disable=broad-except  # whoever waits for the future gets it
            future.set_exception(error)
        else:
            future.set_result(self._outputs)

    def _outcome(self, end):
        """TimeoutError where `end` came first."""
        if not self._ended:
            if not self._lock.acquire(timeout=-1 if end is None else _until(end)):
                raise TimeoutError
            try:
                self._end(end)
            finally:
                self._lock.release()
        self._group.forget(self)
        if self._error is not None:
            raise self._error
        return True

    def _end(self, end):
        """Under the lock."""
        if self._ended:
            return
        try:
            for part in self._parts:
                self._received = part.wait(None if end is None else _until(end))
            for work in self._after:
                work._outcome(end)
            for copy in self._copies:
                copy.store()
        except TimeoutError:
            raise
        except Exception as error:  # pylint: disable=broad-except  # whoever waits for the operation gets it
            self._error = error
        self._ended = True
        self._parts = self._copies = self._after = ()
        if self._recorded is not None:
            self._recorded.set_result(None)


def _until(end):
    """Seconds, as many as a lock waits."""
    return min(max(0, end - time.monotonic()), threading.TIMEOUT_MAX)
