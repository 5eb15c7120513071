// Sizes and names of element types, operators and collectives.
#include "lockstep/types.hpp"

#include <array>

namespace lockstep {
namespace {

struct TypeRow {
  std::string_view name;
  std::size_t size;
};
constexpr std::array<TypeRow, kDataTypeCount> kTypes{{{"f16", 2},
                                                      {"bf16", 2},
                                                      {"f32", 4},
                                                      {"f64", 8},
                                                      {"i8", 1},
                                                      {"u8", 1},
                                                      {"i32", 4},
                                                      {"u32", 4},
                                                      {"i64", 8},
                                                      {"u64", 8},
                                                      {"bool", 1},
                                                      {"complex64", 8},
                                                      {"complex128", 16},
                                                      {"f8e4m3", 1},
                                                      {"f8e5m2", 1}}};
constexpr std::array<std::string_view, kReduceOpCount> kOps{"sum",  "prod", "min",  "max",        "avg",
                                                            "band", "bor",  "bxor", "premul_sum", "user"};
constexpr std::array<std::string_view, kCollectiveCount> kCollectives{
    "all_reduce", "reduce",  "broadcast", "scatter",  "gather",       "all_gather",       "reduce_scatter",
    "all_to_all", "barrier", "scatter_v", "gather_v", "all_gather_v", "reduce_scatter_v", "all_to_all_v"};

}  // namespace

std::size_t size_of(DataType type) noexcept {
  const auto i = static_cast<std::size_t>(type);
  return i < kTypes.size() ? kTypes[i].size : 0;
}
std::string_view name_of(DataType type) noexcept {
  const auto i = static_cast<std::size_t>(type);
  return i < kTypes.size() ? kTypes[i].name : "unknown type";
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
