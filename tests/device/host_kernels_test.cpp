// Every reduction and conversion on a stream of the host backend gives the bits of lib/reduce.
#include <gtest/gtest.h>

#include <vector>

#include "lib/device/host/host_backend.hpp"
#include "lib/reduce/convert.hpp"
#include "lib/reduce/reduce.hpp"
#include "tests/reduce/reference.hpp"
#include "tests/support/must.hpp"

namespace lockstep::internal::testing {
namespace {

class HostKernels : public ::testing::Test {
 protected:
  void run(const ReduceJob& job) {
    must(backend_.reduce(job, nullptr));
    must(backend_.synchronize(nullptr));
  }
  HostBackend backend_;
  Generator generator_{7};
};

TEST_F(HostKernels, EveryTypeAndOperator) {
  constexpr std::size_t kCount = 1'003, kSources = 10;
  int reductions = 0;
  for (int t = 0; t < kDataTypeCount; ++t) {
    for (int o = 0; o < kReduceOpCount - 1; ++o) {
      const auto type = static_cast<DataType>(t);
      const auto op = static_cast<ReduceOp>(o);
      std::vector<Bytes> inputs;
      std::vector<const void*> sources;
      for (std::size_t s = 0; s < kSources; ++s) {
        inputs.push_back(random_elements(type, kCount, generator_, true));
        sources.push_back(inputs.back().data());
      }
      Bytes expected(inputs[0].size()), one(inputs[0].size()), two(inputs[0].size());
      void* const destinations[] = {one.data(), two.data()};
      const ReduceJob job{type, op, kCount, sources, destinations, 3};
      if (!check_reduction(type, op).ok()) {
        EXPECT_EQ(backend_.reduce(job, nullptr).code(), ErrorCode::invalid_argument);
        continue;
      }
      ++reductions;
      run(job);
      void* const host = expected.data();
      reduce({.type = type, .op = op, .count = kCount, .divisor = 3}, sources, {&host, 1});
      EXPECT_EQ(one, expected) << name_of(type) << ' ' << name_of(op);
      EXPECT_EQ(two, expected) << name_of(type) << ' ' << name_of(op);
    }
  }
  EXPECT_EQ(reductions, 6 * 6 + 6 * 9 + 2 * 3 + 7);
}

TEST_F(HostKernels, FactorsScaleAsIfBeforehand) {
  constexpr std::size_t kCount = 9'001;
  for (const DataType type :
       {DataType::f16, DataType::bf16, DataType::f32, DataType::f64, DataType::f8e4m3, DataType::f8e5m2}) {
    const Bytes a = random_elements(type, kCount, generator_, false);
    const Bytes b = random_elements(type, kCount, generator_, false);
    Bytes half(size_of(type)), result(a.size()), scaled_a(a.size()), scaled_b(a.size()), expected(a.size());
    const double one = 1;
    with_type(type, [&]<typename T>(T) {  // 0.5 of the type, for a factor that kernels read.
      T value{};
      if constexpr (std::is_floating_point_v<T>) {
        value = static_cast<T>(one / 2);
      } else if (is_small_float(type)) {
        value = static_cast<T>(narrow(type, 0.5f));
      }
      std::memcpy(half.data(), &value, sizeof value);
    });
    const void* const sources[] = {a.data(), b.data()};
    void* const destination = result.data();
    const ScaleFactor factors[] = {{.value = 3}, {.device = half.data()}};
    run({type, ReduceOp::premul_sum, kCount, sources, {&destination, 1}, 0, factors});
    scale_copy(type, a.data(), scaled_a.data(), kCount, 3);
    scale_copy(type, b.data(), scaled_b.data(), kCount, 0.5);
    const void* const scaled[] = {scaled_a.data(), scaled_b.data()};
    void* const host = expected.data();
    reduce({.type = type, .op = ReduceOp::sum, .count = kCount}, scaled, {&host, 1});
    EXPECT_EQ(result, expected) << name_of(type);
  }
}

/// No double holds the factor.
TEST_F(HostKernels, FactorsOfIntegersAreExact) {
  const std::uint64_t input = 3, factor = (std::uint64_t{1} << 60) + 1;
  std::uint64_t result = 0;
  const void* const source = &input;
  void* const destination = &result;
  const ScaleFactor in_memory{.device = &factor};
  run({DataType::u64, ReduceOp::premul_sum, 1, {&source, 1}, {&destination, 1}, 0, {&in_memory, 1}});
  EXPECT_EQ(result, input * factor);
}

TEST_F(HostKernels, ConversionsAreThoseOfTheLibrary) {
  constexpr std::size_t kCount = 1'000, kBlock = 64, kBlocks = (kCount + kBlock - 1) / kBlock;
  const Bytes bytes = random_elements(DataType::f32, kCount, generator_, false);
  const auto* const input = reinterpret_cast<const float*>(bytes.data());
  for (const DataType type : {DataType::f16, DataType::bf16, DataType::f8e4m3}) {
    Bytes narrowed(kCount * size_of(type)), expected(narrowed.size());
    std::vector<float> widened(kCount), widened_there(kCount);
    must(backend_.convert({DataType::f32, type, input, narrowed.data(), kCount, 0.25f}, nullptr));
    must(backend_.convert({type, DataType::f32, narrowed.data(), widened.data(), kCount, 4}, nullptr));
    must(backend_.synchronize(nullptr));
    lockstep::internal::narrow(type, input, expected.data(), kCount, 0.25f);
    EXPECT_EQ(narrowed, expected);
    lockstep::internal::widen(type, expected.data(), widened_there.data(), kCount, 4);
    EXPECT_EQ(widened, widened_there);
  }
  std::vector<float> scales(kBlocks), scales_there(kBlocks), out(kCount, 1), out_there(kCount, 1);
  std::vector<std::uint8_t> codes(kCount), codes_there(kCount);
  const DataType fp8 = DataType::f8e5m2;
  must(backend_.quantise({fp8, input, kCount, kBlock, scales.data(), codes.data()}, nullptr));
  must(backend_.dequantise({fp8, scales.data(), codes.data(), kCount, kBlock, 2, out.data(), true}, nullptr));
  must(backend_.synchronize(nullptr));
  quantise(fp8, input, kCount, kBlock, scales_there.data(), codes_there.data());
  dequantise(fp8, scales_there.data(), codes_there.data(), kCount, kBlock, 2, out_there.data(), Into::add);
  EXPECT_EQ(scales, scales_there);
  EXPECT_EQ(codes, codes_there);
  EXPECT_EQ(out, out_there);
}

TEST_F(HostKernels, RefusesByName) {
  std::vector<float> data(4);
  const void* const source = data.data();
  void* const destination = data.data();
  const ScaleFactor factors[2];
  EXPECT_EQ(
      backend_.reduce({DataType::f32, ReduceOp::user, 4, {&source, 1}, {&destination, 1}}, nullptr).code(),
      ErrorCode::not_supported);
  EXPECT_EQ(
      backend_.reduce({DataType::f32, ReduceOp::sum, 4, {&source, 1}, {&destination, 1}, 0, factors}, nullptr)
          .message(),
      "a reduction has 2 factors for 1 sources: give one for each, or none");
  const auto with_factor = [&](DataType type, ReduceOp op) {
    return backend_.reduce({type, op, 1, {&source, 1}, {&destination, 1}, 0, {factors, 1}}, nullptr)
        .message();
  };
  EXPECT_EQ(with_factor(DataType::f32, ReduceOp::max), "only sums have factors, not max");
  EXPECT_EQ(
      with_factor(DataType::complex64, ReduceOp::sum),
      "premul_sum needs a real float or integer type, not complex64: scale the input yourself and use sum");
  EXPECT_EQ(backend_.convert({DataType::f16, DataType::bf16, source, destination, 4}, nullptr).message(),
            "no conversion from f16 to bf16: one of the types has to be f32, the other a smaller one");
  EXPECT_EQ(backend_.quantise({DataType::f16, data.data(), 4, 4, data.data(), destination}, nullptr).code(),
            ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace lockstep::internal::testing
