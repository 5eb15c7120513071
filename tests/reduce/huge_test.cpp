// More than 2^32 elements in one call. The buffers are one small piece of memory mapped thousands of times in
// a row, so that the test needs neither the gigabytes nor the time to fill them; only what lies past 2^32 is
// memory of its own.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "lib/net/fd.hpp"
#include "lib/reduce/copy.hpp"
#include "lib/reduce/reduce.hpp"

namespace lockstep::internal {
namespace {

constexpr std::size_t kPiece = 4 << 20;
constexpr std::size_t kRepeated = std::size_t{1} << 32;
constexpr std::size_t kTail = 12'345;
constexpr std::size_t kCount = kRepeated + kTail;

/// kRepeated bytes that are all the same piece, then a piece of its own.
class HugeBuffer {
 public:
  explicit HugeBuffer(std::byte fill) : piece_(memfd_create("huge_test", MFD_CLOEXEC)) {
    EXPECT_EQ(ftruncate(piece_.get(), 2 * kPiece), 0);
    base_ = static_cast<std::byte*>(
        mmap(nullptr, kRepeated + kPiece, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    EXPECT_NE(static_cast<void*>(base_), MAP_FAILED);
    for (std::size_t at = 0; at <= kRepeated; at += kPiece) {
      const off_t offset = at < kRepeated ? 0 : kPiece;
      EXPECT_EQ(mmap(base_ + at, kPiece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
                     piece_.get(), offset),
                base_ + at);
    }
    std::memset(base_, static_cast<int>(fill), kPiece);
    std::memset(tail(), static_cast<int>(fill), kPiece);
  }
  ~HugeBuffer() { munmap(base_, kRepeated + kPiece); }
  HugeBuffer(const HugeBuffer&) = delete;
  HugeBuffer& operator=(const HugeBuffer&) = delete;

  std::byte* data() { return base_; }
  std::byte* tail() { return base_ + kRepeated; }

 private:
  Fd piece_;
  std::byte* base_ = nullptr;
};

TEST(Huge, CountsAreSixtyFourBitsWide) {
  HugeBuffer source(std::byte{3}), result(std::byte{0});
  const std::array<const void*, 2> sources{source.data(), source.data()};
  void* const destination = result.data();
  reduce({DataType::u8, ReduceOp::sum, nullptr, kCount, 0}, sources, {&destination, 1});
  EXPECT_EQ(result.data()[0], std::byte{6});
  EXPECT_EQ(result.tail()[0], std::byte{6});
  EXPECT_EQ(result.tail()[kTail - 1], std::byte{6});
  EXPECT_EQ(result.tail()[kTail], std::byte{0}) << "written past the end";

  copy_bytes(result.data(), source.data(), kCount);
  EXPECT_EQ(result.tail()[kTail - 1], std::byte{3});
  EXPECT_EQ(result.tail()[kTail], std::byte{0}) << "written past the end";
}

}  // namespace
}  // namespace lockstep::internal
