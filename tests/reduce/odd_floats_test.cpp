// Reductions and conversions give the same bits in whatever mode the calling thread's arithmetic is, and
// leave it as it was.
#include "tests/support/odd_floats.hpp"

#include <gtest/gtest.h>

#include <array>

#include "lib/reduce/convert.hpp"
#include "lib/reduce/reduce.hpp"
#include "lockstep/ddp/gradient_norm.hpp"
#include "tests/reduce/reference.hpp"

namespace lockstep::internal {
namespace {

using lockstep::testing::OddFloats;
using namespace testing;

constexpr std::size_t kCount = 4391;

/// What `compute(output)` writes to the first `bytes`, in the usual mode and in the odd one.
template <typename Compute>
void expect_equal_bits(std::size_t bytes, const std::string& what, Compute compute) {
  Bytes usual(bytes), odd(bytes);
  compute(usual.data());
  {
    const OddFloats mode;
    compute(odd.data());
    EXPECT_TRUE(OddFloats::here()) << what;
  }
  EXPECT_EQ(usual, odd) << what;
}

/// A fourth of them subnormal, in f32 and smaller.
Bytes any_bits(DataType type, Generator& generator) {
  Bytes bytes = random_elements(type, kCount, generator, true);
  const std::size_t size = size_of(type);
  for (std::size_t i = 0; i < kCount; i += 4) {
    std::memset(bytes.data() + i * size, 0, size);
    bytes[i * size] = std::byte(generator());
    if (generator() % 2 == 0) bytes[i * size + size - 1] |= std::byte{0x80};
  }
  return bytes;
}

TEST(OddFloats, ReductionsDoNotSeeThem) {
  Generator generator(3);
  for (int t = 0; t < kDataTypeCount; ++t) {
    const auto type = static_cast<DataType>(t);
    if (type == DataType::boolean) continue;
    const Bytes a = any_bits(type, generator), b = any_bits(type, generator);
    const std::array<const void*, 2> sources{a.data(), b.data()};
    for (int o = 0; o < static_cast<int>(ReduceOp::user); ++o) {
      const auto op = static_cast<ReduceOp>(o);
      if (!check_reduction(type, op).ok()) continue;
      expect_equal_bits(
          a.size(), std::string(name_of(type)) + " " + std::string(name_of(op)), [&](void* output) {
            reduce({.type = type, .op = op, .count = kCount, .divisor = 3}, sources, {&output, 1});
          });
    }
    if (!check_reduction(type, ReduceOp::premul_sum).ok()) continue;
    expect_equal_bits(a.size(), "scaled " + std::string(name_of(type)),
                      [&](void* output) { scale_copy(type, a.data(), output, kCount, 3); });
  }
}

TEST(OddFloats, AUsersOperatorDoesNotSeeThem) {
  const UserOp add{[](const void* in, void* inout, std::size_t count, void*) {
                     const auto* x = static_cast<const float*>(in);
                     auto* y = static_cast<float*>(inout);
                     for (std::size_t i = 0; i < count; ++i) y[i] = x[i] + y[i];
                   },
                   nullptr};
  Generator generator(4);
  const Bytes a = any_bits(DataType::f32, generator), b = any_bits(DataType::f32, generator);
  const std::array<const void*, 2> sources{a.data(), b.data()};
  expect_equal_bits(a.size(), "user", [&](void* output) {
    reduce({.op = ReduceOp::user, .user = &add, .count = kCount}, sources, {&output, 1});
  });
}

TEST(OddFloats, ConversionsDoNotSeeThem) {
  Generator generator(5);
  const Bytes wide = any_bits(DataType::f32, generator);
  const auto* input = reinterpret_cast<const float*>(wide.data());
  constexpr std::size_t kBlock = 64, kBlocks = (kCount + kBlock - 1) / kBlock;
  for (const DataType type :
       {DataType::f16, DataType::bf16, DataType::f8e4m3, DataType::f8e5m2, DataType::i8}) {
    const std::string name(name_of(type));
    Bytes narrowed(kCount * size_of(type));
    narrow(type, input, narrowed.data(), kCount, 0.3f);
    expect_equal_bits(narrowed.size(), "to " + name,
                      [&](void* output) { narrow(type, input, output, kCount, 0.3f); });
    expect_equal_bits(wide.size(), "from " + name, [&](void* output) {
      widen(type, narrowed.data(), static_cast<float*>(output), kCount, 0.3f);
    });
    if (type == DataType::f16 || type == DataType::bf16) continue;
    std::vector<float> scales(kBlocks);
    Bytes codes(kCount);
    quantise(type, input, kCount, kBlock, scales.data(), codes.data());
    expect_equal_bits(kBlocks * sizeof(float) + kCount, "blocks of " + name, [&](std::byte* output) {
      quantise(type, input, kCount, kBlock, reinterpret_cast<float*>(output),
               output + kBlocks * sizeof(float));
    });
    expect_equal_bits(wide.size(), "out of blocks of " + name, [&](void* output) {
      dequantise(type, scales.data(), codes.data(), kCount, kBlock, 0.3f, static_cast<float*>(output),
                 Into::replace);
    });
  }
}

TEST(OddFloats, NormsDoNotSeeThem) {
  Generator generator(6);
  for (const DataType type : {DataType::f32, DataType::f64, DataType::bf16}) {
    Bytes data = random_elements(type, kCount, generator, false), clipped = data;
    const double norm = clip_by_global_norm(std::array{GradientSpan{type, clipped.data(), kCount}}, 0.1);
    const OddFloats mode;
    EXPECT_EQ(clip_by_global_norm(std::array{GradientSpan{type, data.data(), kCount}}, 0.1), norm);
    EXPECT_EQ(data, clipped) << name_of(type);
  }
}

}  // namespace
}  // namespace lockstep::internal
