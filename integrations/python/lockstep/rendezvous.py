"""Rendezvous: a place where the ranks of one group meet, served by a process that need not be one of them."""
from ctypes import byref, c_void_p

from ._library import library
from .arguments import text


class Rendezvous:
    """Served from its construction to close(), when the ranks have to be gone or finalized. The ranks of one job meet there, for one group after another.

    job_id and secret are those that the ranks give to Communicator.create; address is for their `rendezvous`.
    """

    def __init__(self, job_id, secret):
        self._handle = c_void_p()
        library.lockstep_rendezvous_create(text(job_id, "job_id"), text(secret, "secret"), byref(self._handle))
        self.address = library.lockstep_rendezvous_address(self._handle).decode()

    def close(self):
        handle, self._handle = self._handle, c_void_p()
        library.lockstep_rendezvous_free(handle)

    def __del__(self):
        if getattr(self, "_handle", None):
            self.close()
