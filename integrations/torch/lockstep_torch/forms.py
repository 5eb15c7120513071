"""The two forms of a group's calls: torch.distributed gives lists of tensors and options; whoever calls a group itself may give one tensor,
and the operator or the root in place of options, or by its name."""
from torch import Tensor
from torch.distributed import ReduceOp


def as_list(tensors):
    return [tensors] if isinstance(tensors, Tensor) else tensors


def as_lists(of_ranks, own):
    """The tensors of all ranks, and this rank's own one: each in a list where they are not yet."""
    return ([of_ranks], [own]) if isinstance(own, Tensor) else (of_ranks, own)


def root_of(options, root):
    return getattr(options, "rootRank", options) if root is None else root


def reduction_of(options, operator=None):
    """The operator: where nobody says which, it is a sum."""
    if operator is None:
        operator = getattr(options, "reduceOp", options)
    return ReduceOp.SUM if operator is None else operator
