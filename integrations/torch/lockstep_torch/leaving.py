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
        self._older = _remembered()
        self._number = next(_numbers)
        _open[self._number] = self
        _leave_at_end_of_process()

    def add(self, communicator, place):
        """`place`: what this rank serves for the communicator, or None."""
        self._joined.append((communicator, place))

    def __call__(self, reason=None):
        """In order; or, with a reason, by an abort, which ends the peers' calls as well and tells them the reason."""
        self._end(None if reason is not None else _PATIENCE, reason)

    def leave(self):
        """In order. On the way of an exception all may come here, as where all handle the same one, or this rank alone: then soon by an
        abort that tells it."""
        reason = self._reason(sys.exc_info()[1])
        self._end(_PATIENCE if reason is None else _PATIENCE_AFTER_ERROR, reason)

    def at_end_of_process(self):
        """Python tells of the exception that ends a program, but for its own sys.exit(); to 3.12 also of the one that ends a child of
        multiprocessing."""
        self(self._reason(sys.exc_info()[1] or getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)))

    def _reason(self, error):
        """What the peers are told of an exception that ends this rank. None: it does not, or was there before the group."""
        if error is None or id(error) in self._older or isinstance(error, GeneratorExit):
            return None
        if isinstance(error, SystemExit):
            if error.code in (None, 0):
                return None
            error = error.__context__ or error  # torch.multiprocessing.spawn ends its children so, after an exception
        try:
            return f"this rank ended by {type(error).__name__}: {error}"
        except Exception:  # pylint: disable=broad-except  # of the exception's own words
            return f"this rank ended by {type(error).__name__}"

    def _end(self, patience, reason):
        """In order where all come within `patience`, if there is any."""
        _open.pop(self._number, None)
        joined, self._joined = self._joined, []
        for communicator, place in joined:
            with contextlib.suppress(lockstep.Error):  # a peer was lost, or the group had failed: that was told before
                if communicator.usable and patience is not None and _all_leave(communicator, patience):
                    communicator.finalize()
                elif reason is not None:
                    communicator.abort(reason)
            communicator.close()
            if place is not None:
                place.close()


def _remembered():
    """By their numbers: what is kept would keep all that an exception has passed through."""
    return {id(error) for error in (sys.exc_info()[1], getattr(sys, "last_exc", None), getattr(sys, "last_value", None)) if error}


def _all_leave(communicator, patience):
    """Whether all ranks come here within `patience`. Not by a barrier, whose deadline would be the end of what others still have to
    tell each other."""
    end = time.monotonic() + patience
    others = range(1, communicator.size) if communicator.rank == 0 else [0]
    try:
        if communicator.rank > 0:
            communicator.send(bytearray(1), 0, _TAG, wait=False)
        heard = [communicator.recv(bytearray(1), other, _TAG, wait=False) for other in others]
        for work in heard:
            work.wait(max(0, end - time.monotonic()))
        if communicator.rank == 0:
            for other in others:
                communicator.send(bytearray(1), other, _TAG, wait=False)
    except (TimeoutError, lockstep.Error):
        return False
    return True


def _leave_all():
    for leaving in list(_open.values()):
        leaving.at_end_of_process()


def _leave_at_end_of_process():
    """Children of multiprocessing end without atexit to Python 3.12, and forget at their start what their parent had for their end."""
    global _process  # pylint: disable=global-statement
    if _process == os.getpid():
        return
    _process = os.getpid()
    atexit.unregister(_leave_all)
    atexit.register(_leave_all)
    multiprocessing.util.Finalize(None, _leave_all, exitpriority=0)
