// A message of more than 2 GiB: no count on its way is narrower than 64 bits.
#include <gtest/gtest.h>
#include <sys/sysinfo.h>

#include <cstdint>
#include <cstring>
#include <memory>

#include "lockstep/lockstep.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep::internal {
namespace {

constexpr std::size_t kBytes = (std::size_t{2} << 30) + 4099;
constexpr std::size_t kMemoryNeeded = std::size_t{6} << 30;  ///< Two buffers, and room for everything else.

bool enough_memory() {
  struct sysinfo info {};
  return ::sysinfo(&info) == 0 && (info.freeram + info.bufferram) * info.mem_unit >= kMemoryNeeded;
}

/// A word that says where it belongs.
std::uint64_t word(std::size_t index) { return index * 0x9e3779b97f4a7c15; }

void fill(std::byte* buffer) {
  for (std::size_t i = 0; i < kBytes / 8; ++i) {
    const std::uint64_t value = word(i);
    std::memcpy(buffer + i * 8, &value, 8);
  }
  for (std::size_t i = kBytes / 8 * 8; i < kBytes; ++i) buffer[i] = std::byte{0x5a};
}

std::size_t wrong_bytes(const std::byte* buffer) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < kBytes / 8; ++i) {
    std::uint64_t value = 0;
    std::memcpy(&value, buffer + i * 8, 8);
    wrong += value == word(i) ? 0 : 8;
  }
  for (std::size_t i = kBytes / 8 * 8; i < kBytes; ++i) wrong += buffer[i] == std::byte{0x5a} ? 0 : 1;
  return wrong;
}

void travel(int rank, const std::string& transport, const std::string& store) {
  InitOptions options;
  options.rank = rank;
  options.world_size = 2;
  options.rendezvous = "file://" + store;
  options.job_id = options.secret = "big";
  options.transports = transport;
  Communicator communicator = Communicator::create(options);
  const auto buffer = std::make_unique_for_overwrite<std::byte[]>(kBytes);
  if (rank == 0) {
    fill(buffer.get());
    communicator.send(buffer.get(), kBytes, DataType::u8, 1);
  } else {
    const RecvStatus status = communicator.recv(buffer.get(), kBytes, DataType::u8, 0);
    EXPECT_EQ(status.count, kBytes);
    EXPECT_EQ(wrong_bytes(buffer.get()), 0U);
    std::memset(buffer.get(), 0, kBytes);
  }
  communicator.broadcast(buffer.get(), kBytes, DataType::u8, 0);
  EXPECT_EQ(wrong_bytes(buffer.get()), 0U);
  communicator.finalize();
}

class BigMessage : public ::testing::TestWithParam<std::string> {};

TEST_P(BigMessage, ArrivesWhole) {
  if (!enough_memory()) GTEST_SKIP() << "needs " << (kMemoryNeeded >> 30) << " GiB of free memory";
  const TemporaryDirectory directory;
  testing::run_forked(2, [&](int rank) {
    try {
      travel(rank, GetParam(), directory.path() + "/store");
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << rank << ": " << error.what();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Over, BigMessage, ::testing::Values("shm", "tcp"),
                         [](const auto& tested) { return tested.param; });

}  // namespace
}  // namespace lockstep::internal
