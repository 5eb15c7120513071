"""lockstep for Python: collectives on NumPy arrays and a reducer for gradients, over the C interface (lockstep.h) by ctypes.

    import lockstep
    with lockstep.Communicator.create() as ranks:   # who am I: from lockstep-run, torchrun, mpirun, srun
        ranks.all_reduce(array)                     # in place; the sum over all ranks
        reducer = lockstep.Reducer(ranks, {"weight": weight, "bias": bias})   # averages gradients

PyTorch has a package of its own, lockstep_torch.
"""
from ._library import library as _functions
from ._version import __version__
from .buffers import Buffer
from .communicator import ANY_SOURCE, ANY_TAG, Communicator
from .errors import Error, ErrorCode
from .memory import allocate, empty
from .reducer import Reducer
from .rendezvous import Rendezvous
from .types import DataType, ReduceOp
from .work import Received, Work

__all__ = ["ANY_SOURCE", "ANY_TAG", "Buffer", "Communicator", "DataType", "Error", "ErrorCode", "Received", "ReduceOp",
           "Reducer", "Rendezvous", "Work", "allocate", "empty", "library_version"]


def library_version():
    """The version of the loaded liblockstep."""
    return _functions.lockstep_version().decode()
