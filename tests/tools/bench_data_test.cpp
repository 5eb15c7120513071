// The benchmark's data: what Data expects must be what the library's own kernels give, in every order of
// summation, and a wrong element must be seen.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "bench/data.hpp"
#include "lib/reduce/reduce.hpp"

namespace lockstep::bench {
namespace {

using Bytes = std::vector<std::byte>;

const Operation& operation(std::string_view name) {
  const auto rows = operations();
  return *std::find_if(rows.begin(), rows.end(), [&](const Operation& row) { return row.name == name; });
}

Bytes input_of(Call call, int rank, std::uint64_t round) {
  call.rank = rank;
  Bytes input(call.count * call.operation->input_blocks(call.world) * size_of(call.type));
  Data(call).fill(input.data(), round);
  return input;
}

// The reduction as the library does it, adding the ranks one by one in the order given.
Bytes reduce_one_by_one(const Call& call, const std::vector<int>& order, std::uint64_t round) {
  Bytes sum;
  for (std::size_t k = 0; k < order.size(); ++k) {
    Bytes next = input_of(call, order[k], round);
    if (call.op == ReduceOp::premul_sum) {
      internal::scale_copy(call.type, next.data(), next.data(), call.count, premul_scale(order[k]));
    }
    internal::Reduction reduction;
    reduction.type = call.type;
    reduction.op = call.op;
    reduction.count = call.count;
    if (call.op == ReduceOp::avg && k + 1 == order.size()) reduction.divisor = call.world;
    const void* sources[] = {sum.data(), next.data()};
    void* destination = next.data();
    internal::reduce(reduction, k == 0 ? std::span(sources).subspan(1) : std::span(sources),
                     {&destination, 1});
    sum = std::move(next);
  }
  return sum;
}

TEST(BenchData, IsExactInEveryTypeAndOrder) {
  constexpr std::uint64_t kCount = 9001;  // more than a period
  for (int t = 0; t < kDataTypeCount; ++t) {
    for (int o = 0; o < static_cast<int>(ReduceOp::user); ++o) {
      const auto type = static_cast<DataType>(t);
      const auto op = static_cast<ReduceOp>(o);
      if (!internal::check_reduction(type, op).ok()) continue;
      for (int world : {1, 2, 3, 5, 16}) {
        const Call call{&operation("all_reduce"), type, op, 0, kCount, 0, world};
        std::vector<int> order(static_cast<std::size_t>(world));
        std::iota(order.begin(), order.end(), 0);
        const std::string what =
            std::string(name_of(type)) + " " + std::string(name_of(op)) + " " + std::to_string(world);
        EXPECT_EQ(Data(call).count_wrong(reduce_one_by_one(call, order, 3).data(), 3), 0u) << what;
        std::reverse(order.begin(), order.end());
        EXPECT_EQ(Data(call).count_wrong(reduce_one_by_one(call, order, 3).data(), 3), 0u) << what;
      }
    }
  }
}

// Every data-moving operation, played by hand from the inputs of all ranks.
Bytes output_by_hand(const Call& call, std::uint64_t round) {
  const std::size_t block = call.count * size_of(call.type);
  const auto part = [&](int from, int index) {
    const Bytes input = input_of(call, from, round);
    const auto begin = input.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(index) * block);
    return Bytes(begin, begin + static_cast<std::ptrdiff_t>(block));
  };
  const std::string_view name = call.operation->name;
  if (name == "broadcast") return part(call.root, 0);
  if (name == "scatter") return part(call.root, call.rank);
  if (name == "sendrecv") return part((call.rank + call.world - 1) % call.world, 0);
  Bytes all;
  for (int rank = 0; rank < call.world; ++rank) {
    const Bytes next = part(rank, name == "all_to_all" ? call.rank : 0);
    all.insert(all.end(), next.begin(), next.end());
  }
  return all;
}

TEST(BenchData, MovesAsTheOperationsDo) {
  for (const char* name : {"broadcast", "scatter", "gather", "all_gather", "all_to_all", "sendrecv"}) {
    for (std::uint64_t count : {1u, 7u, 9001u}) {
      const Call call{&operation(name), DataType::i32, ReduceOp::sum, 2, count, 1, 4};
      const Bytes output = output_by_hand(call, 5);
      EXPECT_EQ(Data(call).count_wrong(output.data(), 5), 0u) << name;
      EXPECT_EQ(Data(call).count_wrong_samples(output.data(), 5), 0u) << name;
      EXPECT_GT(Data(call).count_wrong(output.data(), 6), 0u) << name << ": the result of an earlier round";
    }
  }
}

TEST(BenchData, SeesEveryWrongElement) {
  const Call call{&operation("all_gather"), DataType::f16, ReduceOp::sum, 0, 20000, 0, 2};
  Bytes output = output_by_hand(call, 1);
  for (std::size_t byte : {0u, 1u, 39998u, 40000u, 79999u}) output[byte] ^= std::byte{1};
  EXPECT_EQ(Data(call).count_wrong(output.data(), 1), 4u);          // the first two bytes are one element
  EXPECT_EQ(Data(call).count_wrong_samples(output.data(), 1), 4u);  // all of them first or last of a block
}

TEST(BenchData, NeutralDataSurviveInPlace) {
  for (ReduceOp op :
       {ReduceOp::sum, ReduceOp::prod, ReduceOp::min, ReduceOp::max, ReduceOp::avg, ReduceOp::bxor}) {
    const Call call{&operation("all_reduce"), DataType::i32, op, 0, 100, 0, 3};
    Bytes input(400), output(400);
    Data(call).fill_neutral(input.data(), 100);
    const void* sources[] = {input.data(), input.data(), input.data()};
    void* destination = output.data();
    internal::reduce({DataType::i32, op, nullptr, 100, op == ReduceOp::avg ? 3.0 : 0.0}, sources,
                     {&destination, 1});
    EXPECT_EQ(input, output) << name_of(op);
  }
}

}  // namespace
}  // namespace lockstep::bench
