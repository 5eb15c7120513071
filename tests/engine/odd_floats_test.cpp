// A rank whose thread flushes subnormals and rounds toward zero gets the sums of all others, to the bit, and
// gives them none but these.
#include "tests/support/odd_floats.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <random>

#include "lockstep/lockstep.hpp"
#include "tests/engine/local_ranks.hpp"

namespace lockstep {
namespace {

constexpr int kRanksOfBothModes = 4;

/// Half of them subnormal, or nearly.
std::vector<float> numbers_of(int rank, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank));
  std::uniform_real_distribution<float> number(-1, 1);
  std::vector<float> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = number(random) * (i % 2 == 0 ? 1e-38f : 1);
  return numbers;
}

std::vector<float> reduced(Communicator& communicator, const std::vector<float>& input, ReduceOp op) {
  std::vector<float> output(input.size());
  CallOptions options;
  options.scale = 0.7;
  communicator.all_reduce(input.data(), output.data(), input.size(), DataType::f32, op, options);
  return output;
}

TEST(OddFloats, OfOneRankChangeNoSums) {
  for (const std::string_view transport : {"shm", "tcp"}) {
    for (const std::size_t count : {2u, 100u, 3'000u, 100'000u}) {
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::avg, ReduceOp::premul_sum}) {
        std::vector<std::vector<float>> usual(kRanksOfBothModes), odd(kRanksOfBothModes);
        testing::on_ranks(kRanksOfBothModes, transport, [&](Communicator& communicator) {
          const auto rank = static_cast<std::size_t>(communicator.rank());
          const std::vector<float> input = numbers_of(communicator.rank(), count);
          usual[rank] = reduced(communicator, input, op);
          std::optional<testing::OddFloats> mode;
          if (rank == 1) mode.emplace();
          odd[rank] = reduced(communicator, input, op);
        });
        for (int rank = 0; rank < kRanksOfBothModes; ++rank) {
          const auto& of_rank = odd[static_cast<std::size_t>(rank)];
          ASSERT_EQ(std::memcmp(of_rank.data(), usual[0].data(), count * sizeof(float)), 0)
              << transport << " " << name_of(op) << " of " << count << ", rank " << rank;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
