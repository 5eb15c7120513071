// The guard of writes to peers' memory, between ranks that are threads of one process.
#include "collectives/device/write_guard.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "collectives/device/stream_runner.hpp"
#include "lib/device/host/host_backend.hpp"
#include "tests/support/must.hpp"
#include "tests/support/recording_backend.hpp"

namespace lockstep::internal {
namespace {

using testing::Enqueued;
using testing::must;
using testing::RecordingBackend;

/// Rank 1 writes to rank 0, for as long as the test lets it.
class WriteGuardTest : public ::testing::Test {
 protected:
  static constexpr int kOwner = 0, kWriter = 1, kRanks = 2;

  WriteGuardTest() {
    std::vector<std::byte*> words;
    for (auto& area : areas_) words.push_back(area);
    for (int rank = 0; rank < kRanks; ++rank) {
      streams_.push_back(must(backend_.create_stream(Backend::Priority::normal)));
      guards_.push_back(
          must(WriteGuard::make(backend_, 0, rank, words, [this](int) { return ended_.load(); })));
    }
  }
  ~WriteGuardTest() override {
    release();
    for (const DeviceStream stream : streams_) must(backend_.synchronize(stream));
    guards_.clear();
    for (const DeviceStream stream : streams_) must(backend_.destroy_stream(stream));
  }

  /// Returns when it does.
  void write() {
    must(guards_[kWriter]->guarded(streams_[kWriter], [this](const std::uint32_t*) {
      LOCKSTEP_RETURN_IF_ERROR(backend_.write_value(&writes_, 1, streams_[kWriter]));
      return backend_.wait_value(&release_, 1, streams_[kWriter]);
    }));
    while (std::atomic_ref(writes_).load() == 0) std::this_thread::yield();
  }
  Status close(Nanos longest) { return guards_[kOwner]->close(streams_[kOwner], longest); }
  void release() { std::atomic_ref(release_).store(1); }

  HostBackend real_;
  RecordingBackend backend_{real_};
  std::vector<DeviceStream> streams_;
  std::vector<std::unique_ptr<WriteGuard>> guards_;
  std::atomic<bool> ended_{false};

 private:
  alignas(kWordStride) std::byte areas_[kRanks][kRanks * kWordStride]{};
  std::uint32_t writes_ = 0, release_ = 0;
};

constexpr Nanos kNotReached = 600'000'000'000;

TEST_F(WriteGuardTest, AWriterIsAwaited) {
  write();
  std::atomic<bool> closed{false};
  std::thread owner([&] {
    EXPECT_TRUE(close(kNotReached).ok());
    closed = true;
  });
  sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(closed);
  release();
  owner.join();
}

TEST_F(WriteGuardTest, AWriterWhoseProcessHasEndedIsNot) {
  write();
  ended_ = true;
  EXPECT_TRUE(close(kNotReached).ok());
}

TEST_F(WriteGuardTest, AWriterThatNeverEndsIsToldOf) {
  write();
  const Status closed = close(1);
  EXPECT_EQ(closed.code(), ErrorCode::timeout) << closed.message();
  EXPECT_EQ(closed.culprit(), kWriter);
}

/// It has not entered.
TEST_F(WriteGuardTest, WhatCouldNotBeHeldLeavesNothing) {
  backend_.before = [](const Enqueued& next) {
    return next.what == "wait" ? Status(ErrorCode::device_failed, "a fault of the test") : Status();
  };
  const auto never = [](const std::uint32_t*) { return Status(ErrorCode::internal, "it was not held"); };
  static_cast<void>(backend_.take());
  EXPECT_EQ(guards_[kWriter]->guarded(streams_[kWriter], never).code(), ErrorCode::device_failed);
  EXPECT_EQ(backend_.take().size(), 1u);
}

}  // namespace
}  // namespace lockstep::internal
