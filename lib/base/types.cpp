// Names of element types, operators and collectives.
#include "lockstep/types.hpp"

#include <array>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, kDataTypeCount> kTypes{
    "f16", "bf16", "f32",  "f64",       "i8",         "u8",     "i32",   "u32",
    "i64", "u64",  "bool", "complex64", "complex128", "f8e4m3", "f8e5m2"};
constexpr std::array<std::string_view, kReduceOpCount> kOps{"sum",  "prod", "min",  "max",        "avg",
                                                            "band", "bor",  "bxor", "premul_sum", "user"};
constexpr std::array<std::string_view, kCollectiveCount> kCollectives{
    "all_reduce", "reduce",  "broadcast", "scatter",  "gather",       "all_gather",       "reduce_scatter",
    "all_to_all", "barrier", "scatter_v", "gather_v", "all_gather_v", "reduce_scatter_v", "all_to_all_v"};

// A list that is shorter than its count ends with nothing.
static_assert(!kTypes.back().empty() && !kOps.back().empty() && !kCollectives.back().empty());
static_assert(size_of(static_cast<DataType>(kDataTypeCount - 1)) > 0);

}  // namespace

std::string_view name_of(DataType type) noexcept {
  const auto i = static_cast<std::size_t>(type);
  return i < kTypes.size() ? kTypes[i] : "unknown type";
}
std::string_view name_of(ReduceOp op) noexcept {
  const auto i = static_cast<std::size_t>(op);
  return i < kOps.size() ? kOps[i] : "unknown op";
}
std::string_view name_of(Collective collective) noexcept {
  const auto i = static_cast<std::size_t>(collective);
  return i < kCollectives.size() ? kCollectives[i] : "unknown collective";
}

}  // namespace lockstep
