// The byte ring by itself: wrap-around, padding, and counters that a hostile peer left.
#include "transports/shm/shm_ring.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

namespace lockstep::internal {
namespace {

class RingTest : public ::testing::Test {
 protected:
  RingControl control_{};
  std::unique_ptr<std::byte[]> bytes_ = std::make_unique<std::byte[]>(kRingBytes);
  Ring ring_{&control_, bytes_.get()};
  RingWriter writer_{ring_, real_env()};
  RingReader reader_{ring_};

  void put(std::size_t count, int value) {
    const std::vector<std::byte> bytes(count, static_cast<std::byte>(value));
    ASSERT_GE(writer_.room(count), count);
    writer_.put(bytes);
    writer_.publish();
  }
  // Reads `count` bytes, all of which must be `value`.
  void take(std::size_t count, int value) {
    while (count > 0) {
      ASSERT_GE(reader_.available(count), count);
      const auto part = reader_.front(count);
      EXPECT_TRUE(std::all_of(part.begin(), part.end(),
                              [&](std::byte b) { return b == static_cast<std::byte>(value); }));
      reader_.consume(part.size());
      count -= part.size();
    }
    reader_.publish();
  }
};

TEST_F(RingTest, WrapsAroundManyTimes) {
  for (int round = 0; round < 1000; ++round) {
    const std::size_t bytes = 1 + static_cast<std::size_t>(round) * 7919 % (kRingBytes - kRingGranule);
    put(bytes, round);
    writer_.pad();
    writer_.publish();
    take(bytes, round);
    reader_.pad();
    reader_.publish();
  }
}

TEST_F(RingTest, NothingIsVisibleBeforePublish) {
  const std::byte one[1]{};
  ASSERT_GE(writer_.room(1), 1u);
  writer_.put(one);
  EXPECT_EQ(reader_.available(1), 0u);
  writer_.publish();
  EXPECT_EQ(reader_.available(1), 1u);
}

TEST_F(RingTest, FullMeansFullAndPaddingAlwaysFits) {
  put(kRingBytes, 1);
  EXPECT_EQ(writer_.room(1), 0u);
  take(kRingGranule - 1, 1);
  EXPECT_EQ(writer_.room(1),
            0u);  // A part of a granule is no room: padding after it could overtake the reader.
  take(1, 1);
  EXPECT_EQ(writer_.room(1), kRingGranule);
  put(1, 2);
  writer_.pad();
  EXPECT_EQ(writer_.room(1), 0u);
}

TEST_F(RingTest, ACloseIsSeenAfterTheLastByte) {
  put(10, 3);
  control_.writer_closed.store(1);
  take(10, 3);
  EXPECT_EQ(reader_.available(1), 0u);
  EXPECT_EQ(reader_.state(), RingState::closed);
  control_.reader_closed.store(1);
  EXPECT_EQ(writer_.room(kRingBytes), 0u);
  EXPECT_EQ(writer_.state(), RingState::closed);
}

TEST_F(RingTest, CountersFromAStrangerAreNotBelieved) {
  control_.written.store(kRingBytes + 1);
  EXPECT_EQ(reader_.available(1), 0u);
  EXPECT_EQ(reader_.state(), RingState::corrupt);
  control_.consumed.store(1);  // More than was ever written.
  EXPECT_EQ(writer_.room(kRingBytes + 1), 0u);
  EXPECT_EQ(writer_.state(), RingState::corrupt);

  RingReader backwards(ring_);
  control_.written.store(8);
  EXPECT_EQ(backwards.available(1), 8u);
  control_.written.store(4);
  EXPECT_EQ(backwards.available(9), 0u);
  EXPECT_EQ(backwards.state(), RingState::corrupt);
}

TEST_F(RingTest, AReaderThatGoesBackIsNotGivenARingOfRoom) {
  put(kRingBytes, 1);
  take(kRingBytes, 1);
  put(kRingGranule, 2);
  control_.consumed.store(0);
  EXPECT_EQ(writer_.room(kRingBytes), 0u);
  EXPECT_EQ(writer_.state(), RingState::corrupt);
}

TEST_F(RingTest, WhatWasThereBeforeIsNotReadAgainWhereTheWriterLeavesPaddingOut) {
  put(kRingBytes, 1);
  take(kRingBytes, 1);
  put(kRingGranule - 1, 2);
  take(kRingGranule - 1, 2);
  reader_.pad();
  EXPECT_EQ(reader_.available(1), 0u);
  EXPECT_EQ(reader_.state(), RingState::corrupt);
}

TEST_F(RingTest, TwoThreads) {
  constexpr std::size_t kTotal = 2'000'000;
  std::thread thread([&] {
    std::vector<std::byte> bytes;
    for (std::size_t done = 0; done < kTotal;) {
      const std::size_t count = std::min({writer_.room(1000), std::size_t{1000}, kTotal - done});
      bytes.resize(count);
      for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>((done + i) * 13);
      writer_.put(bytes);
      writer_.publish();
      done += count;
      if (count == 0) std::this_thread::yield();
    }
  });
  std::size_t wrong = 0;
  for (std::size_t done = 0; done < kTotal;) {
    if (reader_.available(1) == 0) std::this_thread::yield();
    const auto part = reader_.front(777);
    for (std::size_t i = 0; i < part.size(); ++i) wrong += part[i] != static_cast<std::byte>((done + i) * 13);
    reader_.consume(part.size());
    reader_.publish();
    done += part.size();
  }
  thread.join();
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace lockstep::internal
