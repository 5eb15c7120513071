"""Element types and operators, by the names that tables and errors of lockstep use."""
import enum


class DataType(enum.IntEnum):
    """Element type of a buffer; <lockstep/types.hpp> says how each is reduced."""
    F16 = 0
    BF16 = 1
    F32 = 2
    F64 = 3
    I8 = 4
    U8 = 5
    I32 = 6
    U32 = 7
    I64 = 8
    U64 = 9
    BOOL = 10
    COMPLEX64 = 11
    COMPLEX128 = 12
    F8E4M3 = 13
    F8E5M2 = 14


class ReduceOp(enum.IntEnum):
    """Reduction operator; calls also take its name in small letters, "sum"."""
    SUM = 0
    PROD = 1
    MIN = 2
    MAX = 3
    AVG = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8

    @classmethod
    def of(cls, op):
        """`op` itself, or the operator of that name; ValueError where there is none."""
        if isinstance(op, cls):
            return op
        try:
            return cls[op.upper()]
        except (KeyError, AttributeError):
            raise ValueError(f"no reduction is called {op!r}: {', '.join(o.name.lower() for o in cls)}") from None


# Names of NumPy's types, those of ml_dtypes included.
BY_NAME = {
    "float16": DataType.F16, "bfloat16": DataType.BF16, "float32": DataType.F32, "float64": DataType.F64,
    "int8": DataType.I8, "uint8": DataType.U8, "int32": DataType.I32, "uint32": DataType.U32,
    "int64": DataType.I64, "uint64": DataType.U64, "bool": DataType.BOOL,
    "complex64": DataType.COMPLEX64, "complex128": DataType.COMPLEX128,
    "float8_e4m3fn": DataType.F8E4M3, "float8_e5m2": DataType.F8E5M2,
}
# Formats of the buffer protocol (array.array, memoryview, ctypes); `l` and `L` are 64 bits on the systems lockstep runs on.
BY_FORMAT = {
    "e": DataType.F16, "f": DataType.F32, "d": DataType.F64, "b": DataType.I8, "B": DataType.U8, "c": DataType.U8,
    "i": DataType.I32, "I": DataType.U32, "l": DataType.I64, "L": DataType.U64, "q": DataType.I64, "Q": DataType.U64,
    "?": DataType.BOOL, "Zf": DataType.COMPLEX64, "Zd": DataType.COMPLEX128,
}
