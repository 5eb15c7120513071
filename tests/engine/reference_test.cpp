// The reference against results worked out by hand, and that it would see what can go wrong.
#include "tests/engine/reference.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "lib/base/float16.hpp"

namespace lockstep::internal {
namespace {

template <typename T>
std::vector<T> as(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

CollectiveCase make_case(Collective collective, DataType type, ReduceOp op, int world, std::size_t count) {
  CollectiveCase c;
  c.collective = collective;
  c.type = type;
  c.op = op;
  c.world = world;
  c.root = world - 1;
  c.count = count;
  return c;
}

TEST(Reference, SumsOverRanks) {
  const auto c = make_case(Collective::all_reduce, DataType::i64, ReduceOp::sum, 3, 5);
  const auto a = as<std::int64_t>(c.input(0)), b = as<std::int64_t>(c.input(1)),
             d = as<std::int64_t>(c.input(2));
  const auto sum = as<std::int64_t>(c.expected(1));
  ASSERT_EQ(sum.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(sum[i], a[i] + b[i] + d[i]);
}

TEST(Reference, Bf16SumsAreExactInAnyOrder) {
  const auto c = make_case(Collective::all_reduce, DataType::bf16, ReduceOp::sum, 8, 1000);
  const auto sum = as<std::uint16_t>(c.expected(0));
  std::vector<std::uint16_t> backward(1000);
  for (int rank = 7; rank >= 0; --rank) {
    const auto input = as<std::uint16_t>(c.input(rank));
    for (std::size_t i = 0; i < 1000; ++i) {
      backward[i] = BF16::from_float(BF16::to_float(backward[i]) + BF16::to_float(input[i]));
    }
  }
  for (std::size_t i = 0; i < 1000; ++i) EXPECT_EQ(BF16::to_float(sum[i]), BF16::to_float(backward[i]));
}

TEST(Reference, MovesTheRightBlocks) {
  auto c = make_case(Collective::all_to_all, DataType::i32, ReduceOp::sum, 3, 2);
  const auto from2 = as<std::int32_t>(c.input(2));
  const auto at1 = as<std::int32_t>(c.expected(1));
  EXPECT_EQ(at1[4], from2[2]);
  EXPECT_EQ(at1[5], from2[3]);
  c.collective = Collective::reduce_scatter;
  const auto part = as<std::int32_t>(c.expected(2));
  EXPECT_EQ(part[1], as<std::int32_t>(c.input(0))[5] + as<std::int32_t>(c.input(1))[5] +
                         as<std::int32_t>(c.input(2))[5]);
  c.collective = Collective::scatter;
  EXPECT_EQ(as<std::int32_t>(c.expected(0))[1], as<std::int32_t>(c.input(2))[1]);
  c.collective = Collective::all_gather;
  EXPECT_EQ(as<std::int32_t>(c.expected(0))[3], as<std::int32_t>(c.input(1))[1]);
}

TEST(Reference, SendAndReceiveCountsAgree) {
  const auto c = make_case(Collective::all_to_all_v, DataType::i32, ReduceOp::sum, 5, 7);
  for (int s = 0; s < 5; ++s) {
    for (int d = 0; d < 5; ++d) {
      EXPECT_EQ(c.counts(s)[static_cast<std::size_t>(d)], c.receive_counts(d)[static_cast<std::size_t>(s)]);
    }
  }
}

TEST(Reference, SeesASwappedChunkAndAMissingContribution) {
  const auto c = make_case(Collective::all_reduce, DataType::bf16, ReduceOp::sum, 4, 64);
  const auto expected = c.expected(0);
  EXPECT_EQ(first_difference(c.type, expected.data(), expected), "");
  auto swapped = expected;
  std::swap_ranges(swapped.begin(), swapped.begin() + 32, swapped.begin() + 32);
  EXPECT_NE(first_difference(c.type, swapped.data(), expected), "");
  auto fewer = c;
  fewer.world = 3;
  EXPECT_NE(first_difference(c.type, fewer.expected(0).data(), expected), "");
}

TEST(Reference, InPlaceBuffersHoldBoth) {
  for (int which = 0; which < kCollectiveCount; ++which) {
    const auto c = make_case(static_cast<Collective>(which), DataType::i32, ReduceOp::sum, 5, 7);
    for (int rank = 0; rank < c.world; ++rank) {
      const auto place = c.in_place(rank);
      if (!place) continue;
      EXPECT_LE(place->input_at + c.input_elements(rank), place->elements) << c.describe();
      EXPECT_LE(place->output_at + c.output_elements(rank), place->elements) << c.describe();
    }
  }
}

}  // namespace
}  // namespace lockstep::internal
