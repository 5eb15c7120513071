"""Work: the handle of an operation in flight."""
from ctypes import byref, c_int, c_size_t
from typing import NamedTuple

from ._library import library
from .errors import Error

_LONGEST = 1e9  # seconds, which nobody lives to see; the library counts microseconds in 64 bits


class Received(NamedTuple):
    """What a receive got: from whom, with which tag, and how many elements."""
    source: int
    tag: int
    count: int


class Work:
    """An operation in flight, for any thread. Its buffers stay alive until it has ended, also when the Work is dropped before."""

    def __init__(self, handle, communicator, buffers, receives=False):
        self._handle = handle
        self._communicator = communicator
        self._buffers = buffers
        self._receives = receives
        self._result = None
        self._error = None

    def wait(self, timeout=None):
        """Returns when the operation has ended: a receive's Received, else None; or raises its Error.

        With `timeout`, in seconds, TimeoutError when that passed first; the operation goes on then.
        """
        self._await_end(timeout)
        if self._error is not None:
            raise self._error
        return self._result

    def done(self):
        """True when the operation has ended, with or without an error. Makes progress, and never raises."""
        handle = self._handle
        if handle is None:
            return True
        done = c_int()
        library.lockstep_work_test(handle, byref(done))
        return bool(done)

    def _await_end(self, timeout):
        handle = self._handle
        if handle is None:
            return
        try:
            if timeout is None:
                library.lockstep_work_wait(handle)
            else:
                done = c_int()
                library.lockstep_work_wait_for(handle, int(min(timeout, _LONGEST) * 1e6), byref(done))
                if not done:
                    raise TimeoutError(f"the operation still runs after {timeout:g} s, and goes on: wait again, or abort the "
                                       "communicator")
            if self._receives:
                source, tag, count = c_int(), c_int(), c_size_t()
                library.lockstep_work_status(handle, byref(source), byref(tag), byref(count))
                self._result = Received(source.value, tag.value, count.value)
        except Error as error:
            self._error = error.with_traceback(None)  # Which would hold the handle; whoever waits gets another.
        self._buffers = self._communicator = None
        self._handle = None  # Last: a thread that finds none looks at the outcome.

    def __del__(self):
        # The library still reads and writes the buffers: the communicator keeps them until it has done so.
        if self._handle is not None:
            self._communicator._keep(self._handle, self._buffers)
