"""Work: the handle of an operation in flight."""
from ctypes import byref, c_int, c_int64, c_size_t, c_void_p
from typing import NamedTuple

from ._library import library
from .errors import Error


class Received(NamedTuple):
    """What a receive got: from whom, with which tag, and how many elements."""
    source: int
    tag: int
    count: int


class Work:
    """An operation in flight. Its buffers stay alive until it has ended, also when the Work is dropped before."""

    def __init__(self, handle, communicator, buffers, receives=False):
        self._handle = c_void_p(handle)
        self._communicator = communicator
        self._buffers = buffers
        self._receives = receives
        self._result = None
        self._error = None

    def wait(self, timeout=None):
        """Returns when the operation has ended: a receive's Received, else None; or raises its Error.

        With `timeout`, in seconds, TimeoutError when that passed first; the operation goes on then.
        """
        if self._handle:
            self._await_end(timeout)
        if self._error is not None:
            raise self._error
        return self._result

    def done(self):
        """True when the operation has ended, with or without an error. Makes progress, and never raises."""
        if not self._handle:
            return True
        done = c_int()
        library.lockstep_work_test(self._handle, byref(done))
        return bool(done)

    def _await_end(self, timeout):
        try:
            if timeout is None:
                library.lockstep_work_wait(self._handle)
            else:
                done = c_int()
                library.lockstep_work_wait_for(self._handle, c_int64(int(timeout * 1e6)), byref(done))
                if not done:
                    raise TimeoutError(f"the operation still runs after {timeout:g} s, and goes on: wait again, or abort the "
                                       "communicator")
            if self._receives:
                source, tag, count = c_int(), c_int(), c_size_t()
                library.lockstep_work_status(self._handle, byref(source), byref(tag), byref(count))
                self._result = Received(source.value, tag.value, count.value)
        except Error as error:
            self._error = error
        handle, self._handle = self._handle, c_void_p()
        self._buffers = self._communicator = None
        library.lockstep_work_free(handle)

    def __del__(self):
        # The library still reads and writes the buffers: the communicator keeps them until it has done so.
        if getattr(self, "_handle", None):
            self._communicator._keep(self._handle, self._buffers)
