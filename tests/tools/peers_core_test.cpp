// What all contenders of tools/compare-peers share: the check of results, which accepts what a plain loop
// over all ranks' inputs gives and sees a single wrong element; and the board on which ranks meet.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include <vector>

#include "bench/peers/board.hpp"
#include "bench/peers/call.hpp"
#include "bench/peers/data.hpp"
#include "tests/support/temporary_directory.hpp"

namespace peers {
namespace {

constexpr unsigned kSalt = 5;
using Vector = std::vector<float>;

std::vector<Vector> inputs(Call call) {
  std::vector<Vector> all;
  for (call.rank = 0; call.rank < call.world; ++call.rank) {
    fill(call, all.emplace_back(call.input_count()).data(), kSalt);
  }
  return all;
}

/// What the rank of `call` must have in the end, element by element as the operation is defined.
Vector expected(const Call& call, const std::vector<Vector>& in) {
  const std::size_t block = call.count(), own = static_cast<std::size_t>(call.rank) * block;
  Vector out(call.output_count());
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t from = i / block, at = i % block;
    switch (call.op) {
      case Op::all_reduce:
      case Op::reduce:
        for (const Vector& one : in) out[i] += one[i];
        break;
      case Op::reduce_scatter:
        for (const Vector& one : in) out[i] += one[own + i];
        break;
      case Op::broadcast:
        out[i] = in[kRoot][i];
        break;
      case Op::scatter:
        out[i] = in[kRoot][own + i];
        break;
      case Op::all_gather:
      case Op::gather:
        out[i] = in[from][at];
        break;
      case Op::all_to_all:
        out[i] = in[from][own + at];
        break;
      case Op::barrier:
        break;
    }
  }
  return out;
}

TEST(PeersData, AcceptsTheRightResultAndSeesOneWrongElement) {
  for (const Op op : {Op::all_reduce, Op::reduce, Op::broadcast, Op::all_gather, Op::reduce_scatter,
                      Op::gather, Op::scatter, Op::all_to_all}) {
    for (const int world : {2, 3, 4}) {
      Call call{op, 1200, "private", 0, world};
      const std::vector<Vector> in = inputs(call);
      for (call.rank = 0; call.rank < world; ++call.rank) {
        Vector out = expected(call, in);
        EXPECT_EQ(count_wrong(call, out.data(), kSalt), 0u) << name_of(op) << " rank " << call.rank;
        out.back() += 1;
        const bool idle = call.rank != kRoot && (op == Op::reduce || op == Op::gather);
        EXPECT_EQ(count_wrong(call, out.data(), kSalt), idle ? 0u : 1u)
            << name_of(op) << " rank " << call.rank;
      }
    }
  }
}

/// Numbers of so few bits that a wider type holds them as they are.
double number_of(Element element, const std::byte* memory) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, memory, size_of(element));
  if (element == Element::i64) return static_cast<double>(bits);
  const bool half = element == Element::f16;
  const unsigned fraction_bits = half ? 10 : 7, bias = half ? 15 : 127;
  if (bits == 0) return 0;
  const double fraction = 1 + static_cast<double>(bits & ((1u << fraction_bits) - 1)) / (1u << fraction_bits);
  return std::ldexp(fraction, static_cast<int>(bits >> fraction_bits) - static_cast<int>(bias));
}

TEST(PeersData, EveryKindHoldsTheSameNumbers) {
  Call plain{Op::all_reduce, 4096, "private", 1, 4};
  Vector numbers(plain.count());
  fill(plain, numbers.data(), kSalt);
  for (const Element element : {Element::f16, Element::bf16, Element::i64}) {
    Call call = plain;
    call.kind.element = element;
    std::vector<std::byte> memory(call.bytes);
    ASSERT_EQ(call.count(), call.bytes / size_of(element));
    fill(call, memory.data(), kSalt);
    for (std::size_t i = 0; i < std::min(call.count(), plain.count()); ++i)
      ASSERT_EQ(number_of(element, memory.data() + i * size_of(element)), numbers[i]) << i;
    EXPECT_GT(count_wrong(call, memory.data(), kSalt), 0u);
  }
}

TEST(PeersData, AMaximumIsNoSum) {
  Call call{Op::all_reduce, 4096, "private", 0, 2, {Element::f32, Reduction::max}};
  const std::vector<Vector> in = inputs(call);
  Vector out(call.count());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::max(in[0][i], in[1][i]);
  EXPECT_EQ(count_wrong(call, out.data(), kSalt), 0u);
  call.kind.reduction = Reduction::sum;
  EXPECT_GT(count_wrong(call, out.data(), kSalt), 0u);
}

TEST(PeersData, ResultsOfAnotherCheckAreWrong) {
  Call call{Op::all_reduce, 4096, "private", 0, 2};
  const Vector out = expected(call, inputs(call));
  EXPECT_GT(count_wrong(call, out.data(), kSalt + 1), 1000u);
}

/// Where a transport or an algorithm that errs takes data from: a page, a segment or a block further on.
TEST(PeersData, DataFromAnotherPlaceAreWrong) {
  constexpr std::size_t kPage = 4096 / sizeof(float);
  Call call{Op::scatter, 4 << 20, "private", 1, 4};
  const std::vector<Vector> in = inputs(call);
  const std::size_t block = call.count();
  for (const std::size_t shift : {kPage, 16 * kPage, block}) {
    const Vector out(in[kRoot].begin() + static_cast<std::ptrdiff_t>(block + shift), in[kRoot].end());
    EXPECT_GT(count_wrong(call, out.data(), kSalt), block / 2) << shift;
  }
}

// Ranks as threads, each with a mapping of its own. `cores` below the number of ranks lets them yield.
void meet_on_a_board(Waiting waiting, int cores) {
  constexpr int kWorld = 3, kRounds = 2000;
  const lockstep::internal::TemporaryDirectory directory;
  std::vector<int> wrong(kWorld);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < kWorld; ++rank) {
    ranks.emplace_back([&, rank] {
      Board board(directory.path() + "/board", rank, kWorld, cores, waiting);
      auto& mine = wrong[static_cast<std::size_t>(rank)];
      for (int i = 0; i < kRounds; ++i) {
        mine += board.max(rank == i % kWorld ? i + 1 : 0) != i + 1;
        mine += board.sum(rank + i) != 3 * i + 3;
      }
      if (rank == 0) board.publish("all ranks read this");
      if (rank != 0) mine += board.next() != "all ranks read this";
      board.times()[5] = rank;
      board.barrier();
      mine += board.slowest(5) != kWorld - 1;
      board.barrier();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(wrong, std::vector<int>(kWorld, 0));
}

TEST(PeersBoard, RanksThatSleepMeet) { meet_on_a_board(Waiting::block, 1); }
TEST(PeersBoard, RanksThatYieldMeet) { meet_on_a_board(Waiting::spin, 1); }

TEST(PeersOrder, ReadsWhatTheDriverWrites) {
  const Order order = parse_order("all_to_all 1048576 registered 40000 4 5 20000");
  EXPECT_EQ(order.op, Op::all_to_all);
  EXPECT_EQ(order.bytes, 1u << 20);
  EXPECT_EQ(order.variant, "registered");
  EXPECT_EQ(order.budget_us, 40000);
  EXPECT_EQ(order.most, 20000);
  EXPECT_EQ(order.kind, Kind{});
  const Order other = parse_order("all_reduce 8192 private/bf16-max 1 1 1 1");
  EXPECT_EQ(other.variant, "private");
  EXPECT_EQ(other.kind, (Kind{Element::bf16, Reduction::max}));
  EXPECT_THROW(parse_order("all_reduce 8 private/f33 1 1 1 1"), std::runtime_error);
  EXPECT_THROW(parse_order("all_too 8 private 1 1 1 1"), std::runtime_error);
  EXPECT_THROW(parse_order("all_reduce 8"), std::runtime_error);
}

}  // namespace
}  // namespace peers
