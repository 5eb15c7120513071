"""How a rank leaves its process group: in order where it can, and without keeping its peers waiting where it cannot."""
import atexit
import contextlib
import itertools
import multiprocessing.util
import os
import sys
import time
import weakref

import lockstep

_PATIENCE = 10  # seconds that a rank waits for the others before it leaves alone
_PATIENCE_AFTER_ERROR = 1  # where it leaves with an exception under way, for which they may wait in vain
_TAG = 2**31 - 1
_numbers = itertools.count()
_open = weakref.WeakValueDictionary()  # In the order in which they were made, which is that of all ranks.
_process = None  # The one whose end leaves them.


class Leaving:
    """Called, it ends the communicators that were added. Groups that nobody has destroyed are left at the end of the program."""

    def __init__(self):
        self._joined = []
        self._number = next(_numbers)
        _open[self._number] = self
        _leave_at_end_of_process()

    def add(self, communicator, place):
        """`place`: what this rank serves for the communicator, or None."""
        self._joined.append((communicator, place))

    def __call__(self, reason=None):
        """In order; or, with a reason, by an abort, which ends the peers' calls as well and tells them the reason."""
        self._end(lambda communicator: reason is None and _all_leave(communicator, _PATIENCE), reason)

    def beside(self, error):
        """In order where all come soon, as where all handle the same exception; else as by a call with `error` for the reason."""
        self._end(lambda communicator: _all_leave(communicator, _PATIENCE_AFTER_ERROR), _reason_of(error))

    def _end(self, in_order, reason):
        _open.pop(self._number, None)
        joined, self._joined = self._joined, []
        for communicator, place in joined:
            with contextlib.suppress(lockstep.Error):  # a peer was lost, or the group had failed: that was told before
                if communicator.usable and in_order(communicator):
                    communicator.finalize()
                elif reason is not None:
                    communicator.abort(reason)
            communicator.close()
            if place is not None:
                place.close()


def _reason_of(error):
    return f"this rank ended by {type(error).__name__}: {error}"


def _all_leave(communicator, patience):
    """Whether all ranks come here within `patience`. Not by a barrier, whose deadline would be the end of what others still have to
    tell each other."""
    end = time.monotonic() + patience
    if communicator.rank > 0:
        communicator.send(bytearray(1), 0, _TAG, wait=False)
    others = range(1, communicator.size) if communicator.rank == 0 else [0]
    heard = [communicator.recv(bytearray(1), other, _TAG, wait=False) for other in others]
    try:
        for work in heard:
            work.wait(max(0, end - time.monotonic()))
    except TimeoutError:
        return False
    if communicator.rank == 0:
        for other in others:
            communicator.send(bytearray(1), other, _TAG, wait=False)
    return True


def _ended_by():
    """The exception that ends this process, as far as Python tells: what is under way in a child of multiprocessing, and what has come
    to the end of a program, but for its own sys.exit()."""
    error = sys.exc_info()[1] or getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if isinstance(error, SystemExit):  # torch.multiprocessing.spawn ends its children by one, after an exception
        return None if error.code in (None, 0) else error.__context__ or error
    return error


def _leave_all():
    error = _ended_by()
    for leaving in list(_open.values()):
        leaving(None if error is None else _reason_of(error))


def _leave_at_end_of_process():
    """Children of multiprocessing end without atexit, and forget at their start what their parent had for their end."""
    global _process  # pylint: disable=global-statement
    if _process == os.getpid():
        return
    _process = os.getpid()
    atexit.unregister(_leave_all)
    atexit.register(_leave_all)
    multiprocessing.util.Finalize(None, _leave_all, exitpriority=0)
