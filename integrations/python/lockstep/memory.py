"""Memory that every transport uses without copying: where gradients and other large buffers should lie."""
import ctypes
import math
import weakref
from ctypes import byref, c_void_p

from ._library import library
from .arguments import MOST_SIZE, whole_number


def allocate(nbytes):
    """`nbytes` bytes, zero at first, as a ctypes array of chars; freed when nothing refers to it or to a view of it any more.

    <lockstep/memory.hpp> says what the memory is. numpy.frombuffer and torch.frombuffer make views of it; `empty` does so at once.
    """
    nbytes = whole_number(nbytes, "nbytes", least=0, most=MOST_SIZE)
    pointer = c_void_p()
    library.lockstep_allocate(max(nbytes, 1), byref(pointer))
    memory = (ctypes.c_char * nbytes).from_address(pointer.value)
    # At exit operations may still be under way in it; the operating system takes it back then.
    weakref.finalize(memory, library.lockstep_free, pointer.value).atexit = False
    return memory


def empty(shape, dtype="float32"):
    """A NumPy array in such memory. (Needs NumPy, as nothing else here does.)"""
    import numpy  # pylint: disable=import-outside-toplevel
    dtype = numpy.dtype(dtype)
    shape = (shape,) if hasattr(shape, "__index__") and numpy.ndim(shape) == 0 else shape
    shape = tuple(whole_number(n, "a dimension", least=0, most=MOST_SIZE) for n in shape)
    count = math.prod(shape)
    return numpy.frombuffer(allocate(max(count, 1) * dtype.itemsize), dtype, count).reshape(shape)
