"""Flat: the one piece of memory that a call works on, made of a tensor or of a list of them."""
import torch

from lockstep import Buffer, DataType

TYPES = {
    torch.float16: DataType.F16, torch.bfloat16: DataType.BF16, torch.float32: DataType.F32, torch.float64: DataType.F64,
    torch.int8: DataType.I8, torch.uint8: DataType.U8, torch.int32: DataType.I32, torch.int64: DataType.I64,
    torch.bool: DataType.BOOL, torch.complex64: DataType.COMPLEX64, torch.complex128: DataType.COMPLEX128,
    torch.float8_e4m3fn: DataType.F8E4M3, torch.float8_e5m2: DataType.F8E5M2,
}
if hasattr(torch, "uint32"):  # from 2.3 on
    TYPES |= {torch.uint32: DataType.U32, torch.uint64: DataType.U64}


class Flat(Buffer):
    """Elements of one type, one after the other: where the tensors are if they lie so, else in a copy."""
    __slots__ = ("_tensors", "_scale", "_copy")

    def __init__(self, tensors, reads=True, reduces=False, copies=False):  # pylint: disable=super-init-not-called  # which checks
        """reads: the call needs the values. reduces: it calculates with them; else elements are bytes where lockstep has no type
        for them. copies: even where the tensors lie in one piece."""
        self._tensors = tensors
        first = tensors[0]
        for tensor in tensors:
            _check(tensor, first.dtype)
        self.type = TYPES.get(first.dtype)
        self._scale = 1
        if self.type is None:
            if reduces:
                raise TypeError(f"lockstep cannot reduce {first.dtype}: convert the tensor to one of "
                                f"{', '.join(str(t).removeprefix('torch.') for t in TYPES)}")
            self.type, self._scale = DataType.U8, first.element_size()
        self._copy = None if not copies and _in_one_piece(tensors) else _copy(tensors, reads)
        self.owner = [self._copy] if self._copy is not None else tensors
        self.count = self.elements(sum(tensor.numel() for tensor in tensors))
        self.address = next((tensor.data_ptr() for tensor in self.owner if tensor.numel() > 0), None)

    def elements(self, n):
        """`n` elements of the tensors, in the unit of `count`."""
        return n * self._scale

    def counts(self):
        """Of each tensor."""
        return [self.elements(tensor.numel()) for tensor in self._tensors]

    @property
    def is_copy(self):
        return self._copy is not None

    def store(self):
        """After the call: writes what came into the copy to the tensors."""
        # In place on tensors that require gradients, and on those of inference mode: as memory, not as a step of the graph.
        with torch.inference_mode(self._tensors[0].is_inference()), torch.no_grad():
            sizes = [tensor.numel() for tensor in self._tensors]
            for tensor, part in zip(self._tensors, self._copy.split(sizes)):
                tensor.detach().copy_(part.view(tensor.shape))


def in_places(tensors):
    """Each by itself, for a call that works in place. A tensor that comes again is worked on from what it has now, as over Gloo."""
    if not tensors:
        raise ValueError("there is no tensor to work on")
    flats, seen = [], set()
    for tensor in tensors:
        flat = Flat([tensor], reduces=True)
        flats.append(Flat([tensor], reduces=True, copies=True) if flat.address in seen else flat)
        seen.add(flat.address)
    return flats


def _check(tensor, dtype):
    if not tensor.is_cpu:
        raise ValueError(f"the backend lockstep takes tensors of the CPU, and this one is on {tensor.device}: for GPUs preload "
                         "liblockstep_nccl.so and choose the backend nccl")
    if tensor.layout != torch.strided:
        raise ValueError(f"a tensor of layout {tensor.layout} cannot be communicated by this call: give its dense form")
    if tensor.dtype != dtype:
        raise ValueError(f"the tensors of one call have one type, and these have {dtype} and {tensor.dtype}")


def _in_one_piece(tensors):
    """Whether the tensors are contiguous and lie one behind the other in one storage, as the chunks of a tensor do; at addresses
    that lockstep takes."""
    if tensors[0].data_ptr() % min(tensors[0].element_size(), 8):  # torch.frombuffer begins anywhere
        return False
    for tensor in tensors:
        if not tensor.is_contiguous() or tensor.is_conj() or tensor.is_neg():
            return False
    return len(tensors) == 1 or _one_behind_the_other(tensors)


def _one_behind_the_other(tensors):
    end, storage = None, tensors[0].untyped_storage().data_ptr()
    for tensor in tensors:
        if tensor.numel() > 0:
            if tensor.untyped_storage().data_ptr() != storage or end not in (None, tensor.data_ptr()):
                return False
            end = tensor.data_ptr() + tensor.numel() * tensor.element_size()
    return True


def _copy(tensors, reads):
    with torch.no_grad():
        # A program may have set another device as its default.
        memory = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=tensors[0].dtype, device="cpu")
        if reads:
            start = 0
            for tensor in tensors:
                memory[start:start + tensor.numel()].view(tensor.shape).copy_(tensor.detach())
                start += tensor.numel()
        return memory
