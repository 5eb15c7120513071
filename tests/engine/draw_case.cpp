#include "tests/engine/draw_case.hpp"

#include <iterator>

#include "lib/reduce/reduce.hpp"

namespace lockstep::internal {

CollectiveCase draw_case(std::mt19937_64& random, int world) {
  constexpr DataType kTypes[] = {DataType::f16, DataType::bf16, DataType::f32, DataType::f64, DataType::i8,
                                 DataType::u8,  DataType::i32,  DataType::u32, DataType::i64, DataType::u64};
  constexpr ReduceOp kOps[] = {ReduceOp::sum,        ReduceOp::avg,  ReduceOp::min, ReduceOp::max,
                               ReduceOp::prod,       ReduceOp::band, ReduceOp::bor, ReduceOp::bxor,
                               ReduceOp::premul_sum, ReduceOp::user};
  CollectiveCase c;
  c.world = world;
  c.collective = static_cast<Collective>(random() % kCollectiveCount);
  c.type = kTypes[random() % std::size(kTypes)];
  do {
    c.op = kOps[random() % std::size(kOps)];
  } while (c.op != ReduceOp::user && !check_reduction(c.type, c.op).ok());
  c.root = static_cast<int>(random() % static_cast<std::uint64_t>(world));
  return c;
}

std::size_t bytes_of_count(const CollectiveCase& c) {
  const bool whole = c.collective == Collective::all_reduce || c.collective == Collective::reduce ||
                     c.collective == Collective::broadcast;
  return size_of(c.type) * (whole ? 1 : static_cast<std::size_t>(c.world));
}

std::size_t draw_count(std::mt19937_64& random, const CollectiveCase& c, std::size_t most_bytes) {
  return random() % ((most_bytes / bytes_of_count(c) >> (random() % 17)) + 1);
}

}  // namespace lockstep::internal
