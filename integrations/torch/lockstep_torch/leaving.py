"""How a rank leaves its process group: in order where it can, and without keeping its peers waiting where it cannot."""
import atexit
import contextlib
import itertools
import sys
import time
import weakref

import lockstep

_PATIENCE = 10  # seconds that a rank waits for the others before it leaves alone
_TAG = 2**31 - 1
_numbers = itertools.count()
_open = weakref.WeakValueDictionary()  # In the order in which they were made, which is that of all ranks.


class Leaving:
    """Called, it ends the communicators that were added. Groups that nobody has destroyed are left at the end of the program."""

    def __init__(self):
        self._joined = []
        self._number = next(_numbers)
        _open[self._number] = self

    def add(self, communicator, place):
        """`place`: what this rank serves for the communicator, or None."""
        self._joined.append((communicator, place))

    def __call__(self, reason=None):
        """In order; or, with a reason, by an abort, which ends the peers' calls as well and tells them the reason."""
        _open.pop(self._number, None)
        joined, self._joined = self._joined, []
        for communicator, place in joined:
            with contextlib.suppress(lockstep.Error):  # a peer was lost, or the group had failed: that was told before
                if reason is not None:
                    communicator.abort(reason)
                elif communicator.usable and _all_leave(communicator):
                    communicator.finalize()
            communicator.close()
            if place is not None:
                place.close()


def _all_leave(communicator):
    """Whether all ranks come here within a while. Not by a barrier, whose deadline would be the end of what others still have to
    tell each other."""
    end = time.monotonic() + _PATIENCE
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


@atexit.register
def _leave_all():
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    reason = None if error is None else f"this rank ended by {type(error).__name__}: {error}"
    for leaving in list(_open.values()):
        leaving(reason)
