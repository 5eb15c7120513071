"""all_reduce of sparse tensors (gradients of embeddings): everybody's values are gathered and added up."""
import torch

from .forms import reduction_of
from .operators import operator_of


def summand(tensor, opts):
    """What this rank's `tensor` adds to the sum; ValueError where it is to be no sum."""
    operator, _ = operator_of(reduction_of(opts))
    if operator.name != "SUM":
        raise ValueError(f"sparse tensors can be summed, and this is {operator.name}")
    return tensor.coalesce()


def all_reduce(group, tensor, own):
    """Blocks. The sum over all ranks, of which this one adds `own`, is put in `tensor`, which is returned."""
    counts = list(torch.zeros(group.size(), 1, dtype=torch.int64, device="cpu"))
    group.allgather([counts], [torch.tensor([own._nnz()], device="cpu")]).wait()
    indices = _gathered(group, own.indices().t().contiguous(), counts)
    values = _gathered(group, own.values().contiguous(), counts)
    total = torch.sparse_coo_tensor(indices.t(), values, tensor.shape, device="cpu").coalesce()
    tensor.copy_(total)
    return tensor


def _gathered(group, rows, counts):
    """The rows of all ranks, of which rank r has counts[r]."""
    whole = torch.empty((int(sum(counts)), *rows.shape[1:]), dtype=rows.dtype, device="cpu")
    parts = list(whole.split([int(count) for count in counts]))
    group.allgather([parts], [rows]).wait()
    return whole
