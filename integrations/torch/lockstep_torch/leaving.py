"""How a rank leaves its process group: in order where it can, and without keeping its peers waiting where it cannot."""
import atexit
import contextlib
import sys
import weakref

import lockstep

_PATIENCE = 10  # seconds that a rank waits for the others before it leaves alone
_open = weakref.WeakSet()


class Leaving:
    """Called, it ends the communicators that were added. Groups that nobody has destroyed are left at the end of the program."""

    def __init__(self):
        self._joined = []
        _open.add(self)

    def add(self, communicator, place):
        """`place`: what this rank serves for the communicator, or None."""
        self._joined.append((communicator, place))

    def __call__(self, reason=None):
        """In order; or, with a reason, by an abort, which ends the peers' calls as well and tells them the reason."""
        _open.discard(self)
        joined, self._joined = self._joined, []
        for communicator, place in joined:
            with contextlib.suppress(lockstep.Error):  # a peer was lost, or the group had failed: that was told before
                if reason is not None:
                    communicator.abort(reason)
                elif communicator.usable:
                    communicator.barrier(timeout=_PATIENCE)
                    communicator.finalize()
            communicator.close()
            if place is not None:
                place.close()


@atexit.register
def _leave_all():
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    reason = None if error is None else f"this rank ended by {type(error).__name__}: {error}"
    for leaving in list(_open):
        leaving(reason)
