"""Handles: what the library gave, and gets back when nobody refers to it any more.

A call under way in another thread refers to the handles that it was given, so nothing is freed under it.
"""
from collections import deque
from ctypes import byref, c_int, c_void_p

from ._library import library


class WorkHandle(c_void_p):
    """Of an operation, which goes on without it."""
    __slots__ = ()

    def __del__(self, free=library.lockstep_work_free):
        free(self)


class CommunicatorHandle(c_void_p):
    """Of a communicator, with the operations that nobody waits for and the buffers that they still use."""

    def __init__(self, value):
        super().__init__(value)
        self._dropped = deque()

    def __del__(self, free=library.lockstep_comm_free):
        free(self)  # Ends the operations; their buffers go after it.

    def keep(self, work, buffers):
        """Holds `buffers` until `work` has ended, as far as later drops look. From any thread, also in the midst of itself."""
        self._dropped.append((work, buffers))
        done = c_int()
        for _ in range(len(self._dropped)):
            try:
                entry = self._dropped.popleft()  # Each is in one thread's hands at a time.
            except IndexError:
                return
            library.lockstep_work_test(entry[0], byref(done))
            if not done:
                self._dropped.append(entry)


class ReducerHandle(c_void_p):
    """Of a reducer, and the parameters that it may read and write as long as it is there."""

    def __init__(self, value, owners):
        super().__init__(value)
        self._owners = owners

    def __del__(self, free=library.lockstep_reducer_free):
        free(self)
