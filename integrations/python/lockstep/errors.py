"""What lockstep raises."""
import enum


class ErrorCode(enum.IntEnum):
    """Why an operation failed; <lockstep/error.hpp> says what each code means."""
    OK = 0
    INVALID_ARGUMENT = 1
    MISMATCH = 2
    PEER_LOST = 3
    TIMEOUT = 4
    ABORTED = 5
    REFUSED = 6
    SYSTEM = 7
    OUT_OF_MEMORY = 8
    NOT_SUPPORTED = 9
    CONFIGURATION = 10
    UNAUTHORIZED = 11
    INTERNAL = 12
    DEVICE_FAILED = 13


class Error(RuntimeError):
    """A failed operation. Its text names operation, rank, peer, one cause and the next step.

    code: an ErrorCode. culprit: the rank that caused it, or -1 where no single rank did.
    """

    def __init__(self, code, message, culprit=-1):
        super().__init__(message)
        self.code = code
        self.culprit = culprit

    def __reduce__(self):  # so that it can pass between processes
        return (type(self), (self.code, str(self), self.culprit))
