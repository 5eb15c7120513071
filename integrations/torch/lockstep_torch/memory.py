"""Tensors in memory that every transport uses without copying."""
import math

import torch

import lockstep


def empty(*size, dtype=None):
    """As torch.empty on the host, in memory of lockstep.allocate, and zero. For what is communicated again and again."""
    shape = size[0] if len(size) == 1 and not isinstance(size[0], int) else size
    dtype = dtype or torch.get_default_dtype()
    count = math.prod(shape)
    if count == 0:
        return torch.empty(shape, dtype=dtype, device="cpu")
    return torch.frombuffer(lockstep.allocate(count * dtype.itemsize), dtype=dtype, count=count).view(shape)
