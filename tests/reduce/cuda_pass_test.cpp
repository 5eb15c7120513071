// The kernels of GPUs, run on the host thread by thread, give the bits of lib/reduce.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <utility>
#include <vector>

#include "lib/reduce/cuda/kernel_list.hpp"
#include "lib/reduce/cuda/plan.hpp"
#include "lib/reduce/cuda/repair.hpp"
#include "lib/reduce/reduce.hpp"
#include "tests/reduce/reference.hpp"
#include "tests/support/must.hpp"
#include "tests/support/small_types.hpp"

namespace lockstep::internal::testing {
namespace {

using Body = void (*)(const cuda::PassArguments&, std::size_t thread, std::size_t threads);
using Bodies = std::map<std::pair<DataType, ReduceOp>, Body>;

struct AddBody {
  Bodies* bodies;
  template <class Element, class Op>
  void operator()(DataType type, ReduceOp op) const {
    bodies->emplace(std::pair(type, op), &cuda::PassBody<Element, Op>::run);
  }
};

const Bodies& bodies() {
  static const Bodies all = [] {
    Bodies list;
    cuda::list_all(AddBody{&list});
    return list;
  }();
  return all;
}

void run(const ReduceJob& job) {
  must(check_job(job));
  constexpr std::size_t kThreads = 5;
  for (const cuda::PlannedPass& pass : must(cuda::plan_passes(job))) {
    const Body body = bodies().at({pass.type, pass.op});
    for (std::size_t thread = 0; thread < kThreads; ++thread) body(pass.arguments, thread, kThreads);
  }
}

/// Buffers of one reduction, each `past` elements after an address that is a multiple of 16.
struct Case {
  DataType type;
  ReduceOp op;
  std::size_t count;
  std::vector<std::size_t> sources, destinations;  ///< Each buffer's `past`.
  double divisor = 3;
};

class Buffer {
 public:
  Buffer(const Bytes& content, std::size_t past, std::size_t size)
      : bytes_(content.size() + kVector * 20), past_(past * size), content_(content.size()) {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    past_ += (kVector - address % kVector) % kVector;
    for (std::size_t i = 0; i < bytes_.size(); ++i) bytes_[i] = std::byte{0xa5};
    std::copy(content.begin(), content.end(), bytes_.begin() + static_cast<std::ptrdiff_t>(past_));
  }
  std::byte* data() { return bytes_.data() + past_; }
  Bytes content() { return {data(), data() + content_}; }
  bool surroundings_untouched() const {
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if ((i < past_ || i >= past_ + content_) && bytes_[i] != std::byte{0xa5}) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kVector = 16;
  Bytes bytes_;
  std::size_t past_, content_;
};

void check(const Case& c, Generator& generator) {
  const std::size_t size = size_of(c.type);
  std::vector<Buffer> inputs, outputs;
  std::vector<const void*> sources;
  std::vector<void*> destinations;
  for (const std::size_t past : c.sources) {
    inputs.emplace_back(random_elements(c.type, c.count, generator, true), past, size);
  }
  for (const std::size_t past : c.destinations) outputs.emplace_back(Bytes(c.count * size), past, size);
  for (Buffer& input : inputs) sources.push_back(input.data());
  for (Buffer& output : outputs) destinations.push_back(output.data());
  Bytes expected(c.count * size);
  void* const host = expected.data();
  reduce({.type = c.type, .op = c.op, .count = c.count, .divisor = c.divisor}, sources, {&host, 1});
  run({c.type, c.op, c.count, sources, destinations, c.divisor});
  for (Buffer& output : outputs) {
    ASSERT_EQ(first_difference(c.type, output.content(), expected), c.count)
        << name_of(c.type) << ' ' << name_of(c.op) << ", " << c.count << " elements, " << sources.size()
        << " sources";
    ASSERT_TRUE(output.surroundings_untouched());
  }
}

template <typename Body_>
void for_reductions(Body_ body) {
  for (int t = 0; t < kDataTypeCount; ++t) {
    for (int o = 0; o < static_cast<int>(ReduceOp::user); ++o) {
      const auto type = static_cast<DataType>(t);
      const auto op = static_cast<ReduceOp>(o);
      if (check_reduction(type, op).ok()) body(type, op);
    }
  }
}

TEST(CudaPass, EveryTypeAndOperator) {
  Generator generator(1);
  for_reductions([&](DataType type, ReduceOp op) {
    for (const std::size_t count : {1, 2, 15, 16, 17, 333}) {
      check({type, op, count, {0, 0}, {0}}, generator);
      check({type, op, count, {1, 1, 1}, {1, 1}}, generator);              // A head and a tail.
      check({type, op, count, {0, 1, 2, 3, 4, 5, 6, 7}, {1}}, generator);  // Not alike: one by one.
      check({type, op, count, {3}, {3, 3, 3}}, generator);
      check({type, op, count, {0, 0}, {0}, 1}, generator);  // avg that does not divide yet.
    }
  });
}

TEST(CudaPass, SourcesOfSeveralPasses) {
  Generator generator(2);
  const std::vector<std::size_t> alike(70, 0), many(40, 0);
  for (const DataType type : {DataType::i32, DataType::u8, DataType::i64, DataType::boolean, DataType::f64}) {
    check({type, ReduceOp::sum, 100, alike, {0, 0}}, generator);
    check({type, ReduceOp::max, 100, alike, many}, generator);
    if (type != DataType::boolean) check({type, ReduceOp::avg, 100, alike, {0}, 70}, generator);
  }
}

/// What is stored between two passes would overflow where the average does not.
TEST(CudaPass, AveragesInSeveralPassesStayInRange) {
  constexpr std::size_t kCount = 100;
  for (const SmallType& small : kSmallTypes) {
    const Bytes given = largest_numbers(small, kCount);
    for (const std::size_t count : {33, 40, 64}) {
      const std::vector<const void*> sources(count, given.data());
      Bytes result(given.size());
      void* const to = result.data();
      run({small.type, ReduceOp::avg, kCount, sources, {&to, 1}, static_cast<double>(count)});
      EXPECT_EQ(result, given) << name_of(small.type) << " from " << count << " sources";
    }
  }
}

TEST(CudaPass, InPlace) {
  Generator generator(3);
  constexpr std::size_t kCount = 100;
  const Bytes a = random_elements(DataType::f16, kCount, generator, false);
  const Bytes b = random_elements(DataType::f16, kCount, generator, false);
  Buffer x(a, 1, 2), y(b, 1, 2);
  Bytes expected(a.size());
  const std::array<const void*, 2> before{a.data(), b.data()};
  void* const host = expected.data();
  reduce({.type = DataType::f16, .op = ReduceOp::prod, .count = kCount}, before, {&host, 1});
  const std::array<const void*, 2> sources{x.data(), y.data()};
  const std::array<void*, 2> destinations{y.data(), x.data()};
  run({DataType::f16, ReduceOp::prod, kCount, sources, destinations});
  EXPECT_EQ(x.content(), expected);
  EXPECT_EQ(y.content(), expected);
}

TEST(CudaPass, ManyBuffersInPlaceNeedAFreeDestination) {
  constexpr std::size_t kSources = 40;
  std::vector<std::vector<std::uint32_t>> data(kSources, {1, 2, 3});
  std::vector<const void*> sources;
  for (auto& one : data) sources.push_back(one.data());
  const std::array<void*, 2> early{data[0].data(), data[39].data()};
  run({DataType::u32, ReduceOp::sum, 3, sources, early});  // By way of the first.
  EXPECT_EQ(data[0], (std::vector<std::uint32_t>{40, 80, 120}));
  EXPECT_EQ(data[39], data[0]);
  void* const late = data[39].data();
  EXPECT_EQ(cuda::plan_passes({DataType::u32, ReduceOp::sum, 3, sources, {&late, 1}}).status().code(),
            ErrorCode::not_supported);
}

TEST(CudaPass, FactorsRoundAsScalingBeforehand) {
  Generator generator(4);
  constexpr std::size_t kCount = 77;
  for (const DataType type :
       {DataType::f16, DataType::bf16, DataType::f32, DataType::f64, DataType::f8e4m3, DataType::f8e5m2}) {
    // All of one pass; the rounding between passes is another.
    for (const std::size_t count : {std::size_t{3}, std::size_t{32}}) {
      std::vector<Bytes> inputs, scaled;
      std::vector<const void*> sources, scaled_sources;
      std::vector<ScaleFactor> factors;
      const Bytes there = random_elements(type, 1, generator, false);
      for (std::size_t s = 0; s < count; ++s) {
        inputs.push_back(random_elements(type, kCount, generator, false));
        factors.push_back({.value = 0.3 * static_cast<double>(s)});
        scaled.emplace_back(inputs.back().size());
        scale_copy(type, inputs[s].data(), scaled[s].data(), kCount, factors[s].value);
      }
      for (std::size_t s = 0; s < count; ++s) {
        sources.push_back(inputs[s].data());
        scaled_sources.push_back(scaled[s].data());
      }
      Bytes result(inputs[0].size()), expected(inputs[0].size());
      void *const mine = result.data(), *const host = expected.data();
      run({type, ReduceOp::premul_sum, kCount, sources, {&mine, 1}, 0, factors});
      reduce({.type = type, .op = ReduceOp::sum, .count = kCount}, scaled_sources, {&host, 1});
      EXPECT_EQ(first_difference(type, result, expected), kCount) << name_of(type);

      // A factor that lies in memory.
      const ScaleFactor in_memory{.device = there.data()};
      run({type, ReduceOp::premul_sum, kCount, {sources.data(), 1}, {&mine, 1}, 0, {&in_memory, 1}});
      double value = 0;
      with_type(type, [&]<typename T>(T) {
        T x{};
        std::memcpy(&x, there.data(), sizeof x);
        if constexpr (std::is_floating_point_v<T>) {
          value = x;
        } else if constexpr (std::is_integral_v<T>) {
          value = widen(type, static_cast<std::uint16_t>(x));
        }
      });
      scale_copy(type, inputs[0].data(), expected.data(), kCount, value);
      EXPECT_EQ(first_difference(type, result, expected), kCount) << name_of(type);
    }
  }
}

/// Also those that no double holds, where they lie in memory.
TEST(CudaPass, IntegersAreScaledAsProductsWrap) {
  Generator generator(5);
  constexpr std::size_t kCount = 77;
  for (const DataType type :
       {DataType::i8, DataType::u8, DataType::i32, DataType::u32, DataType::i64, DataType::u64}) {
    const Bytes input = random_elements(type, kCount, generator, false);
    const Bytes there = random_elements(type, 1, generator, false);
    Bytes many, result(input.size()), expected(input.size());
    for (std::size_t i = 0; i < kCount; ++i) many.insert(many.end(), there.begin(), there.end());
    const void *const source = input.data(), *const both[] = {input.data(), many.data()};
    void *const mine = result.data(), *const host = expected.data();
    const ScaleFactor in_memory{.device = there.data()}, of_call{.value = -5};
    run({type, ReduceOp::premul_sum, kCount, {&source, 1}, {&mine, 1}, 0, {&in_memory, 1}});
    reduce({.type = type, .op = ReduceOp::prod, .count = kCount}, both, {&host, 1});
    EXPECT_EQ(first_difference(type, result, expected), kCount) << name_of(type);
    run({type, ReduceOp::premul_sum, kCount, {&source, 1}, {&mine, 1}, 0, {&of_call, 1}});
    scale_copy(type, input.data(), expected.data(), kCount, of_call.value);
    EXPECT_EQ(first_difference(type, result, expected), kCount) << name_of(type);
  }
}

TEST(CudaPass, KernelsAreFew) { EXPECT_EQ(bodies().size(), 10u + 16 + 3 * 7 + 3 * 3); }

/// Round to nearest and never past the largest finite number, as GPUs narrow.
template <typename Float>
std::uint8_t saturated(float x) {
  const std::uint8_t bits = Float::from_float(x);
  const std::uint32_t magnitude = bits & (Float::kSign - 1);
  if (magnitude < Float::kOverflow) return bits;
  return static_cast<std::uint8_t>((x < 0 ? Float::kSign : 0) | (Float::kOverflow - 1));
}

template <typename Float>
void check_repair() {
  for (std::uint64_t bits = 0; bits <= 0xffffffff; bits += 1021) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    ASSERT_EQ(cuda::repair_saturated<Float>(x, saturated<Float>(x)), Float::from_float(x)) << x;
  }
  for (const float x :
       {464.0f, 464.00003f, 448.0f, 480.0f, 61440.0f, 61439.996f, 57344.0f, 65536.0f, INFINITY}) {
    for (const float y : {x, -x}) {
      ASSERT_EQ(cuda::repair_saturated<Float>(y, saturated<Float>(y)), Float::from_float(y)) << y;
    }
  }
}

TEST(CudaPass, SaturatedFp8IsRepaired) {
  check_repair<F8E4M3>();
  check_repair<F8E5M2>();
}

}  // namespace
}  // namespace lockstep::internal::testing
