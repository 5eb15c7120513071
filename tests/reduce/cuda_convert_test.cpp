// The conversion kernels of GPUs, run on the host thread by thread, give the bits of lib/reduce/convert.hpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "lib/reduce/convert.hpp"
#include "lib/reduce/cuda/convert.hpp"
#include "tests/reduce/reference.hpp"

namespace lockstep::internal::testing {
namespace {

constexpr std::size_t kThreads = 3;

/// One thread that is a whole group.
struct Alone {
  static std::size_t lane() { return 0; }
  static std::size_t size() { return 1; }
  static std::uint32_t max(std::uint32_t mine) { return mine; }
};

/// Floats among which are NaNs, infinities, ties of every small type, and all magnitudes.
std::vector<float> many_floats(std::size_t count, bool finite) {
  Generator generator(5);
  std::vector<float> values(count);
  for (float& value : values) {
    do {
      value = std::bit_cast<float>(static_cast<std::uint32_t>(generator()));
      if (generator() % 2 == 0) value = static_cast<float>(static_cast<int>(generator() % 4096) - 2048) / 16;
    } while (finite && !std::isfinite(value));
  }
  return values;
}

template <typename T>
Bytes bytes_of(const std::vector<T>& values) {
  const auto* const first = reinterpret_cast<const std::byte*>(values.data());
  return {first, first + values.size() * sizeof(T)};
}

struct CheckNarrow {
  std::size_t past;  ///< Elements before the buffers begin: 0 for accesses by four.

  template <class Format>
  void operator()(DataType type) const {
    using Stored = typename Format::Stored;
    constexpr std::size_t kCount = 40'003;
    const bool integer = type == DataType::i8;  // Which has no NaN.
    const std::vector<float> input = many_floats(kCount + past, integer);
    std::vector<Stored> mine(kCount + past), host(kCount + past);
    const cuda::ConvertArguments down{input.data() + past, mine.data() + past, kCount, 0.75f};
    for (std::size_t t = 0; t < kThreads; ++t) cuda::narrow_part<Format>(down, t, kThreads);
    lockstep::internal::narrow(type, input.data() + past, host.data() + past, kCount, 0.75f);
    EXPECT_EQ(first_difference(type, bytes_of(mine), bytes_of(host)), kCount + past) << name_of(type);

    std::vector<float> wide(kCount + past), host_wide(kCount + past);
    const cuda::ConvertArguments up{host.data() + past, wide.data() + past, kCount, 1.5f};
    for (std::size_t t = 0; t < kThreads; ++t) cuda::widen_part<Format>(up, t, kThreads);
    lockstep::internal::widen(type, host.data() + past, host_wide.data() + past, kCount, 1.5f);
    EXPECT_EQ(first_difference(DataType::f32, bytes_of(wide), bytes_of(host_wide)), kCount + past);
  }
};

TEST(CudaConvert, NarrowAndWiden) {
  cuda::list_narrow(CheckNarrow{0});
  cuda::list_narrow(CheckNarrow{1});
}

struct CheckQuantise {
  std::size_t block;

  template <class Format>
  void operator()(DataType type) const {
    using Stored = typename Format::Stored;
    constexpr std::size_t kCount = 5'003;
    const std::size_t blocks = (kCount + block - 1) / block;
    std::vector<float> input = many_floats(kCount, true);
    for (float& value : input) value = std::clamp(value, -1e30f, 1e30f);
    std::fill_n(input.begin(), block, 0.0f);
    if (type != DataType::i8) input[block] = INFINITY;  // NaN as a whole.
    std::vector<float> scales(blocks), host_scales(blocks), output(kCount, 2), host_output(kCount, 2);
    std::vector<Stored> codes(kCount), host_codes(kCount);
    cuda::BlockArguments a{};
    a.input = input.data();
    a.scales = scales.data();
    a.codes = codes.data();
    a.count = kCount;
    a.block = block;
    for (std::size_t b = 0; b < blocks; ++b) cuda::quantise_block<Format>(a, b, Alone());
    quantise(type, input.data(), kCount, block, host_scales.data(), host_codes.data());
    EXPECT_EQ(first_difference(DataType::f32, bytes_of(scales), bytes_of(host_scales)), blocks);
    EXPECT_EQ(first_difference(type, bytes_of(codes), bytes_of(host_codes)), kCount) << name_of(type);
    for (const bool add : {false, true}) {
      a.factor = 0.5f;
      a.output = output.data();
      a.add = add;
      for (std::size_t b = 0; b < blocks; ++b) cuda::dequantise_block<Format>(a, b, Alone());
      dequantise(type, host_scales.data(), host_codes.data(), kCount, block, 0.5f, host_output.data(),
                 add ? Into::add : Into::replace);
      EXPECT_EQ(first_difference(DataType::f32, bytes_of(output), bytes_of(host_output)), kCount);
    }
  }
};

TEST(CudaConvert, QuantiseAndDequantise) {
  cuda::list_quantised(CheckQuantise{64});
  cuda::list_quantised(CheckQuantise{37});
}

}  // namespace
}  // namespace lockstep::internal::testing
