"""torch's reduction operators as lockstep's."""
from torch.distributed import ReduceOp

import lockstep

_OPERATORS = {
    ReduceOp.SUM: lockstep.ReduceOp.SUM, ReduceOp.AVG: lockstep.ReduceOp.AVG, ReduceOp.PRODUCT: lockstep.ReduceOp.PROD,
    ReduceOp.MIN: lockstep.ReduceOp.MIN, ReduceOp.MAX: lockstep.ReduceOp.MAX, ReduceOp.BAND: lockstep.ReduceOp.BAND,
    ReduceOp.BOR: lockstep.ReduceOp.BOR, ReduceOp.BXOR: lockstep.ReduceOp.BXOR,
    ReduceOp.PREMUL_SUM: lockstep.ReduceOp.PREMUL_SUM,
}


def operator_of(reduce_op):
    """The operator, and the factor that this rank's values are multiplied by first."""
    kind = getattr(reduce_op, "op", reduce_op)
    if not isinstance(kind, ReduceOp.RedOpType):
        raise TypeError(f"{reduce_op!r} is no operator: give one of torch.distributed.ReduceOp")
    operator = _OPERATORS[kind]
    if operator != lockstep.ReduceOp.PREMUL_SUM:
        return operator, 1.0
    factor = reduce_op.__getstate__()[1]
    return operator, float(factor)
