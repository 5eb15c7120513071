"""Buffer: where a call's data lie, taken from a NumPy array or whatever offers the buffer protocol."""
import ctypes
import sys

from ._library import library
from .arguments import MOST_ADDRESS, MOST_SIZE, whole_number
from .types import BY_FORMAT, BY_NAME, DataType


class Buffer:
    """`count` elements of `type` at `address`; `owner` keeps them alive."""
    __slots__ = ("address", "count", "type", "owner")

    def __init__(self, address, count, type, owner):  # pylint: disable=redefined-builtin
        self.address = None if address is None else whole_number(address, "address", least=0, most=MOST_ADDRESS)
        self.count = whole_number(count, "count", least=0, most=MOST_SIZE)
        self.type = DataType(type)
        self.owner = owner

    @classmethod
    def of(cls, data, writable):
        """What `data` holds, without a copy (but of what is read only and only read). ValueError says why it cannot be used."""
        if isinstance(data, cls):
            return data
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(data, numpy.ndarray):  # a scalar of NumPy has no memory of its own to show
            return cls._of_array(data, writable)
        return cls._of_memory(data, writable)

    @classmethod
    def _of_array(cls, array, writable):
        name = array.dtype.name
        if name not in BY_NAME or not array.dtype.isnative:
            raise ValueError(f"an array of {array.dtype} cannot be used: lockstep has {', '.join(BY_NAME)}, in native byte order")
        if not array.flags.c_contiguous:
            raise ValueError("the array is not contiguous: give numpy.ascontiguousarray(array)")
        if writable and not array.flags.writeable:
            raise ValueError("the array is read only, and the call writes to it")
        return cls(array.__array_interface__["data"][0], array.size, BY_NAME[name], array)

    @classmethod
    def _of_memory(cls, data, writable):
        try:
            view = memoryview(data)
        except TypeError:
            raise ValueError(f"{type(data).__name__} is no array and has no buffer: give a NumPy array, a bytearray "
                             "or an array.array") from None
        kind = BY_FORMAT.get(view.format.lstrip("@=<"))
        # A standard size, as "<l" has of struct, is not what ctypes means by it.
        if kind is None or library.lockstep_type_size(kind) != view.itemsize:
            raise ValueError(f"elements of format {view.format!r} cannot be used: lockstep has {', '.join(BY_FORMAT)}")
        if not view.c_contiguous:
            raise ValueError("the buffer is not contiguous")
        if writable and view.readonly:
            raise ValueError("the buffer is read only, and the call writes to it")
        count = view.nbytes // view.itemsize
        if view.nbytes == 0:
            return cls(None, 0, kind, data)
        memory = ctypes.c_char * view.nbytes
        owner = memory.from_buffer_copy(view.cast("B")) if view.readonly else memory.from_buffer(data)
        return cls(ctypes.addressof(owner), count, kind, (owner, data))
