#include "integrations/nccl/types.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "integrations/nccl/result.hpp"

namespace lockstep::nccl {
namespace {

template <typename T>
T read(const void* scalar) {
  T value;
  std::memcpy(&value, scalar, sizeof value);
  return value;
}

/// An integer as a double, which is exact.
template <typename T>
double whole(const void* scalar) {
  const auto value = static_cast<double>(read<T>(scalar));
  if (std::abs(value) < 0x1p53) return value;
  throw invalid_usage("a scalar of 2^53 or more has to lie on the device (ncclScalarDevice)");
}

}  // namespace

DataType to_type(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
      return DataType::i8;
    case ncclUint8:
      return DataType::u8;
    case ncclInt32:
      return DataType::i32;
    case ncclUint32:
      return DataType::u32;
    case ncclInt64:
      return DataType::i64;
    case ncclUint64:
      return DataType::u64;
    case ncclFloat16:
      return DataType::f16;
    case ncclFloat32:
      return DataType::f32;
    case ncclFloat64:
      return DataType::f64;
    case ncclBfloat16:
      return DataType::bf16;
    case ncclFloat8e4m3:
      return DataType::f8e4m3;
    case ncclFloat8e5m2:
      return DataType::f8e5m2;
    case ncclNumTypes:
      break;
  }
  throw invalid_argument("datatype " + std::to_string(static_cast<int>(type)) + " is none of ncclDataType_t");
}

ReduceOp to_op(ncclRedOp_t op) {
  switch (op) {
    case ncclSum:
      return ReduceOp::sum;
    case ncclProd:
      return ReduceOp::prod;
    case ncclMax:
      return ReduceOp::max;
    case ncclMin:
      return ReduceOp::min;
    case ncclAvg:
      return ReduceOp::avg;
    default:
      throw invalid_argument("operator " + std::to_string(static_cast<int>(op)) + " is not built in");
  }
}

double read_scalar(const void* scalar, ncclDataType_t type) {
  switch (type) {
    case ncclFloat16:
      return __half2float(read<__half>(scalar));
    case ncclBfloat16:
      return __bfloat162float(read<__nv_bfloat16>(scalar));
    case ncclFloat32:
      return read<float>(scalar);
    case ncclFloat64:
      return read<double>(scalar);
    case ncclFloat8e4m3:
      return static_cast<float>(read<__nv_fp8_e4m3>(scalar));
    case ncclFloat8e5m2:
      return static_cast<float>(read<__nv_fp8_e5m2>(scalar));
    case ncclInt8:
      return whole<std::int8_t>(scalar);
    case ncclUint8:
      return whole<std::uint8_t>(scalar);
    case ncclInt32:
      return whole<std::int32_t>(scalar);
    case ncclUint32:
      return whole<std::uint32_t>(scalar);
    case ncclInt64:
      return whole<std::int64_t>(scalar);
    case ncclUint64:
      return whole<std::uint64_t>(scalar);
    case ncclNumTypes:
      break;
  }
  throw Refusal(ncclInternalError, "a scalar of no type");
}

}  // namespace lockstep::nccl
