#include "bench/peers/data.hpp"

namespace peers {
namespace {

// Small whole numbers: sums of 64 ranks are exact in f32.
float value(int rank, std::size_t index, unsigned salt) {
  const auto mixed = static_cast<unsigned>(index) * 7u + (static_cast<unsigned>(index) >> 5) +
                     static_cast<unsigned>(rank) * 13u + salt;
  return static_cast<float>(mixed & 31u);
}

float sum_at(int world, std::size_t index, unsigned salt) {
  float total = 0;
  for (int rank = 0; rank < world; ++rank) total += value(rank, index, salt);
  return total;
}

template <typename Expected>
std::uint64_t differences(const float* output, std::size_t count, const Expected& expected) {
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) wrong += output[i] != expected(i) ? 1 : 0;
  return wrong;
}

}  // namespace

void fill(const Call& call, float* input, unsigned salt) {
  const std::size_t count = call.input_count();
  for (std::size_t i = 0; i < count; ++i) input[i] = value(call.rank, i, salt);
}

std::uint64_t count_wrong(const Call& call, const float* output, unsigned salt) {
  const std::size_t block = call.count();
  const std::size_t mine = static_cast<std::size_t>(call.rank) * block;
  const bool idle = call.rank != kRoot && (call.op == Op::reduce || call.op == Op::gather);
  if (block == 0 || idle) return 0;
  switch (call.op) {
    case Op::barrier:
      return 0;
    case Op::all_reduce:
    case Op::reduce:
      return differences(output, block, [&](std::size_t i) { return sum_at(call.world, i, salt); });
    case Op::reduce_scatter:
      return differences(output, block, [&](std::size_t i) { return sum_at(call.world, mine + i, salt); });
    case Op::broadcast:
      return differences(output, block, [&](std::size_t i) { return value(kRoot, i, salt); });
    case Op::scatter:
      return differences(output, block, [&](std::size_t i) { return value(kRoot, mine + i, salt); });
    case Op::all_gather:
    case Op::gather:
    case Op::all_to_all: {
      const std::size_t from = call.op == Op::all_to_all ? mine : 0;
      std::uint64_t wrong = 0;
      for (int rank = 0; rank < call.world; ++rank) {
        wrong += differences(output + static_cast<std::size_t>(rank) * block, block,
                             [&](std::size_t i) { return value(rank, from + i, salt); });
      }
      return wrong;
    }
  }
  return 0;
}

}  // namespace peers
