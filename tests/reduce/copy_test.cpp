// scale_copy and copy_bytes.
#include "lib/reduce/copy.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <numeric>

#include "lib/reduce/reduce.hpp"
#include "tests/reduce/reference.hpp"

namespace lockstep::internal {
namespace {

using namespace testing;

TEST(ScaleCopy, MultipliesEveryRealFloatType) {
  Generator generator(3);
  constexpr double kFactor = 0.3;
  for (const DataType type :
       {DataType::f16, DataType::bf16, DataType::f8e4m3, DataType::f8e5m2, DataType::f32, DataType::f64}) {
    for (const std::size_t count : {0, 1, 5, 16, 77}) {
      const Bytes input = random_elements(type, count, generator, true);
      Bytes output(input.size() + 1, std::byte{0x77}), in_place = input;
      scale_copy(type, input.data(), output.data(), count, kFactor);
      scale_copy(type, in_place.data(), in_place.data(), count, kFactor);
      ASSERT_EQ(output.back(), std::byte{0x77});
      ASSERT_TRUE(std::equal(in_place.begin(), in_place.end(), output.begin()));
      with_type(type, [&]<typename T>(T) {
        for (std::size_t i = 0; i < count; ++i) {
          T x, got;
          std::memcpy(&x, input.data() + i * sizeof(T), sizeof(T));
          std::memcpy(&got, output.data() + i * sizeof(T), sizeof(T));
          T expected{};
          if constexpr (std::is_same_v<T, double>) {
            expected = x * kFactor;
          } else if constexpr (std::is_same_v<T, float>) {
            expected = x * static_cast<float>(kFactor);
          } else if constexpr (std::is_unsigned_v<T>) {
            expected = static_cast<T>(narrow(type, widen(type, x) * static_cast<float>(kFactor)));
          }
          ASSERT_TRUE(same_element(type, got, expected)) << name_of(type) << " element " << i;
        }
      });
    }
  }
}

/// Whatever its payload: what rounds could carry it on to a number.
TEST(ScaleCopy, ByANanGivesNans) {
  const auto factor = std::bit_cast<double>(std::uint64_t{0x7fffffffe0000000});
  for (const DataType type : {DataType::f16, DataType::bf16, DataType::f8e4m3, DataType::f8e5m2}) {
    const Bytes ones = [&] {
      Bytes bytes(77 * size_of(type));
      for (std::size_t i = 0; i < 77; ++i) {
        const std::uint16_t one = narrow(type, 1);
        std::memcpy(bytes.data() + i * size_of(type), &one, size_of(type));
      }
      return bytes;
    }();
    Bytes output(ones.size());
    scale_copy(type, ones.data(), output.data(), 77, factor);
    for (std::size_t i = 0; i < 77; ++i) {
      std::uint16_t got = 0;
      std::memcpy(&got, output.data() + i * size_of(type), size_of(type));
      ASSERT_TRUE(std::isnan(widen(type, got))) << name_of(type) << " element " << i;
    }
  }
}

TEST(ScaleCopy, IntegersWrap) {
  Generator generator(4);
  for (const DataType type :
       {DataType::i8, DataType::u8, DataType::i32, DataType::u32, DataType::i64, DataType::u64}) {
    for (const double factor : {3.0, -3.0, 0x1p40 + 1}) {
      const Bytes input = random_elements(type, 77, generator, true);
      Bytes output(input.size());
      scale_copy(type, input.data(), output.data(), 77, factor);
      with_type(type, [&]<typename T>(T) {
        for (std::size_t i = 0; i < 77; ++i) {
          T x{}, got{}, expected{};
          std::memcpy(&x, input.data() + i * sizeof(T), sizeof(T));
          std::memcpy(&got, output.data() + i * sizeof(T), sizeof(T));
          if constexpr (std::is_integral_v<T>) {
            const auto whole = static_cast<std::int64_t>(factor);
            expected = static_cast<T>(static_cast<std::uint64_t>(x) * static_cast<std::uint64_t>(whole));
          }
          ASSERT_EQ(got, expected) << name_of(type);
        }
      });
    }
  }
}

using Copy = void (*)(void*, const void*, std::size_t);

class Copies : public ::testing::TestWithParam<Copy> {};
INSTANTIATE_TEST_SUITE_P(All, Copies,
                         ::testing::Values(Copy([](void* to, const void* from, std::size_t bytes) {
                                             copy_bytes(to, from, bytes);
                                           }),
                                           Copy([](void* to, const void* from, std::size_t bytes) {
                                             copy_bytes(to, from, bytes, true);
                                           })));

TEST_P(Copies, AnySizeAtAnyAlignmentAndNothingMore) {
  std::vector<std::byte> source(5000), destination(5000);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 7 + 1);
  for (const std::size_t bytes : {0, 1, 63, 64, 65, 255, 256, 1023, 1024, 4001, 4097, 4500}) {
    for (std::size_t offset = 0; offset < 3; ++offset) {
      std::fill(destination.begin(), destination.end(), std::byte{0});
      GetParam()(destination.data() + 64 + offset, source.data() + 2 * offset, bytes);
      ASSERT_EQ(std::memcmp(destination.data() + 64 + offset, source.data() + 2 * offset, bytes), 0);
      for (std::size_t i = 0; i < 64 + offset; ++i) ASSERT_EQ(destination[i], std::byte{0});
      for (std::size_t i = 64 + offset + bytes; i < destination.size(); ++i)
        ASSERT_EQ(destination[i], std::byte{0});
    }
  }
}

// Where `rep movsb` is slow on some processors, and beside it.
TEST_P(Copies, ALittleBehindTheSourceWithinAPage) {
  constexpr std::size_t kPage = 4096, kMost = 9000;
  std::vector<std::byte> memory(2 * kMost + 3 * kPage);
  const auto start = reinterpret_cast<std::uintptr_t>(memory.data());
  std::byte* const source = memory.data() + (kPage - start % kPage);
  std::byte* const page = source + (kMost + kPage) / kPage * kPage;
  for (const std::size_t bytes : {2047, 2048, 2049, 4096, 8999}) {
    for (std::size_t behind = 0; behind < 70; ++behind) {
      std::fill(memory.begin(), memory.end(), std::byte{0x5a});
      for (std::size_t i = 0; i < bytes; ++i) source[i] = static_cast<std::byte>(i * 7 + behind);
      std::byte* const destination = page + behind;
      GetParam()(destination, source, bytes);
      ASSERT_EQ(std::memcmp(destination, source, bytes), 0) << bytes << " bytes, " << behind << " behind";
      ASSERT_EQ(destination[-1], std::byte{0x5a});
      ASSERT_EQ(destination[bytes], std::byte{0x5a});
    }
  }
}

TEST(CopyBytes, CopiesAboveTheNontemporalThreshold) {
  ASSERT_GE(nontemporal_threshold(), std::size_t{4} << 20);
  const std::size_t words = nontemporal_threshold() / sizeof(std::uint64_t) + 1001;
  std::vector<std::uint64_t> source(words), destination(words + 1);
  std::iota(source.begin(), source.end(), 1);
  std::byte* unaligned = reinterpret_cast<std::byte*>(destination.data()) + 3;
  copy_bytes(unaligned, source.data(), words * sizeof(std::uint64_t));
  EXPECT_EQ(std::memcmp(unaligned, source.data(), words * sizeof(std::uint64_t)), 0);
}

}  // namespace
}  // namespace lockstep::internal
