// Simulated links and time: bytes arrive whole and in order however they are cut, back-pressure holds, faults
// end streams, and a seed replays exactly.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "transports/sim/sim_network.hpp"

namespace lockstep::internal {
namespace {

constexpr Nanos kSecond = 1'000'000'000;

std::vector<std::byte> message(std::size_t number) {
  std::vector<std::byte> bytes(number * 37 % 501);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(number * 31 + i * 7);
  return bytes;
}

FrameHeader header_of(std::size_t number) {
  FrameHeader header;
  header.sequence = number;
  header.bytes = message(number).size();
  return header;
}

// Sends messages 0, 1, ... as fast as the link takes them.
class Sender {
 public:
  void step(Link& link, std::size_t messages) {
    while (sent_ < messages && status_.ok()) {
      const auto done = link.send(header_of(sent_), message(sent_), cursor_);
      if (!done.ok()) status_ = done.status();
      if (!done.ok() || !done.value()) return;
      cursor_ = {};
      ++sent_;
    }
  }
  std::size_t sent() const { return sent_; }
  const Status& status() const { return status_; }

 private:
  std::size_t sent_ = 0;
  SendCursor cursor_;
  Status status_;
};

// Takes messages 0, 1, ... and checks them; every second one through borrow().
class Receiver {
 public:
  void step(Link& link) {
    while (status_.ok() && take_some(link)) {
    }
  }
  std::size_t received() const { return received_; }
  /// Of all messages, and of that which is under way.
  std::size_t payload_bytes() const { return payload_of_whole_ + payload_.size(); }
  const Status& status() const { return status_; }

 private:
  bool take_some(Link& link) {
    const auto header = link.peek();
    if (!header.ok()) status_ = header.status();
    if (!header.ok() || header.value() == nullptr) return false;
    const FrameHeader& head = *header.value();
    EXPECT_EQ(head.sequence, received_);
    const std::size_t left = head.bytes - payload_.size();
    if (left > 0) return take_payload(link, left);
    EXPECT_EQ(payload_, message(received_));
    payload_of_whole_ += payload_.size();
    payload_.clear();
    link.pop();
    ++received_;
    return true;
  }

  bool take_payload(Link& link, std::size_t left) {
    if (received_ % 2 == 0 && left >= kUnit) {
      const auto borrowed = link.borrow(kUnit, 100);
      if (!borrowed.ok()) status_ = borrowed.status();
      if (!borrowed.ok() || borrowed.value().empty()) return false;
      const auto bytes = borrowed.value();
      EXPECT_EQ(bytes.size() % kUnit, 0U);
      EXPECT_LE(bytes.size(), 100U);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes.data()) % kUnit, 0U);
      payload_.insert(payload_.end(), bytes.begin(), bytes.end());
      link.release(bytes.size());
      return true;
    }
    std::byte buffer[64];
    const auto got = link.read(std::span(buffer, std::min(left, sizeof buffer)));
    if (!got.ok()) status_ = got.status();
    if (!got.ok() || got.value() == 0) return false;
    payload_.insert(payload_.end(), buffer, buffer + got.value());
    return true;
  }

  static constexpr std::size_t kUnit = 8;
  std::size_t received_ = 0;
  std::size_t payload_of_whole_ = 0;  // Of the messages received.
  std::vector<std::byte> payload_;
  Status status_;
};

// Both ranks send to each other.
struct Pair {
  Pair(std::uint64_t seed, SimDelivery delivery, std::size_t in_flight)
      : schedule(2, seed), network(schedule, {{SimDelay{}, delivery, in_flight}, false}) {
    for (int r : {0, 1}) {
      transport[r] = network.attach(r);
      schedule.wake(r, 0);
    }
  }

  void step(int rank) {
    ++steps[rank];
    EXPECT_TRUE(transport[rank]->service().ok());
    const auto link = transport[rank]->link(1 - rank, Channel::collective);
    ASSERT_TRUE(link.ok()) << link.status().message();
    if (link.value() == nullptr) return;
    sender[rank].step(*link.value(), messages);
    receiver[rank].step(*link.value());
  }

  bool advance() {
    return schedule.advance([this](int rank) { step(rank); });
  }
  // Until `done` or nothing is left to happen.
  template <typename Done>
  void run(Done done) {
    while (!done() && advance()) {
    }
  }
  bool all_received() const {
    return receiver[0].received() == messages && receiver[1].received() == messages;
  }

  std::size_t messages = 40;
  SimSchedule schedule;
  SimNetwork network;
  std::unique_ptr<Transport> transport[2];
  Sender sender[2];
  Receiver receiver[2];
  int steps[2] = {0, 0};
};

struct Mode {
  SimDelivery delivery;
  std::size_t in_flight;
};

class EveryMode : public ::testing::TestWithParam<Mode> {};

TEST_P(EveryMode, DeliversEverythingInOrder) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Pair pair(seed, GetParam().delivery, GetParam().in_flight);
    pair.run([&] { return pair.all_received(); });
    EXPECT_TRUE(pair.all_received()) << "seed " << seed << ": " << pair.receiver[0].received() << " and "
                                     << pair.receiver[1].received();
  }
}

TEST_P(EveryMode, ReplaysASeedExactly) {
  std::set<std::uint64_t> hashes;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    std::uint64_t first = 0;
    for (int repeat = 0; repeat < 2; ++repeat) {
      Pair pair(seed, GetParam().delivery, GetParam().in_flight);
      pair.run([&] { return pair.all_received(); });
      if (repeat == 0) first = pair.schedule.hash();
      EXPECT_EQ(pair.schedule.hash(), first) << "seed " << seed;
    }
    hashes.insert(first);
  }
  EXPECT_EQ(hashes.size(), 10U) << "two seeds gave the same run";
}

TEST_P(EveryMode, CrashEndsBothDirections) {
  std::set<std::uint64_t> arrived;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Pair pair(seed, GetParam().delivery, GetParam().in_flight);
    pair.messages = 100'000;
    const bool trickles = GetParam().in_flight < sizeof(FrameHeader);
    const Nanos when = trickles ? 5'000'000 : 50'000;  // By then payload comes.
    pair.schedule.at(when, [&] { pair.schedule.crash(1); });
    pair.run([&] { return !pair.receiver[0].status().ok() && !pair.sender[0].status().ok(); });
    for (const Status& status : {pair.receiver[0].status(), pair.sender[0].status()}) {
      EXPECT_EQ(status.code(), ErrorCode::peer_lost);
      EXPECT_EQ(status.culprit(), 1);
    }
    EXPECT_LT(pair.schedule.now(), when + kSecond / 100);
    EXPECT_LE(pair.receiver[0].received(), pair.sender[1].sent() + 1);
    arrived.insert(pair.receiver[0].payload_bytes());
  }
  EXPECT_GT(arrived.size(), 2U) << "what survives a crash does not depend on the seed";
}

INSTANTIATE_TEST_SUITE_P(Sim, EveryMode,
                         ::testing::Values(Mode{SimDelivery::whole, 64 * 1024},
                                           Mode{SimDelivery::split, 64 * 1024}, Mode{SimDelivery::split, 100},
                                           Mode{SimDelivery::split, 1},
                                           Mode{SimDelivery::bytewise, 64 * 1024},
                                           Mode{SimDelivery::bytewise, 3}));

TEST(SimLink, SmallBufferHoldsTheSenderBack) {
  Pair pair(1, SimDelivery::whole, 100);
  pair.schedule.at(100'000, [&] { pair.schedule.pause(1); });
  pair.messages = 1'000;
  while (pair.schedule.now() < kSecond && pair.advance()) {
  }
  const std::size_t sent = pair.sender[0].sent();
  EXPECT_LT(sent, 1'000U);
  EXPECT_LE(sent, pair.receiver[1].received() + 3) << "more than the buffer holds was accepted";
  pair.schedule.resume(1);
  pair.run([&] { return pair.all_received(); });
  EXPECT_TRUE(pair.all_received());
}

TEST(SimLink, CloseDeliversEverythingThenEnds) {
  Pair pair(2, SimDelivery::split, 1 << 20);
  pair.run([&] { return pair.sender[0].sent() == pair.messages; });
  pair.transport[0].reset();
  const auto step_survivor = [&](int rank) {
    if (rank == 1) pair.step(rank);
  };
  while (pair.receiver[1].status().ok() && pair.schedule.advance(step_survivor)) {
  }
  EXPECT_EQ(pair.receiver[1].received(), pair.messages);
  EXPECT_EQ(pair.receiver[1].status().code(), ErrorCode::peer_lost);
}

TEST(SimLink, WhatCameBeforeASendFailedCanStillBeRead) {
  Pair pair(4, SimDelivery::split, 1 << 20);
  pair.run([&] { return pair.sender[0].sent() == pair.messages; });
  Link& link = *pair.transport[1]->link(0, Channel::collective).value();
  pair.transport[0].reset();
  const auto send_on = [&](int rank) {
    if (rank == 1) pair.sender[1].step(link, SIZE_MAX);
  };
  while (pair.sender[1].status().ok() && pair.schedule.advance(send_on)) {
  }
  EXPECT_EQ(pair.sender[1].status().code(), ErrorCode::peer_lost);
  while (pair.receiver[1].status().ok() && pair.schedule.advance([&](int rank) {
    if (rank == 1) pair.receiver[1].step(link);
  })) {
  }
  EXPECT_EQ(pair.receiver[1].received(), pair.messages);
  EXPECT_EQ(pair.receiver[1].status().code(), ErrorCode::peer_lost);
}

TEST(SimLink, ConnectingToACrashedRankFails) {
  Pair pair(3, SimDelivery::whole, 100);
  pair.schedule.crash(1);
  pair.run([&] { return !pair.receiver[0].status().ok(); });
  EXPECT_EQ(pair.receiver[0].status().culprit(), 1);
}

TEST(SimSchedule, PausedRankIsSteppedAfterResume) {
  SimSchedule schedule(1, 7);
  int steps = 0;
  const auto step = [&](int) { ++steps; };
  schedule.pause(0);
  schedule.wake(0, 10);
  schedule.wake(0, 20);
  while (schedule.advance(step)) {
  }
  EXPECT_EQ(steps, 0);
  schedule.resume(0);
  while (schedule.advance(step)) {
  }
  EXPECT_EQ(steps, 1);
  EXPECT_EQ(schedule.now(), 20);
}

TEST(SimSchedule, OneMomentIsOneStep) {
  SimSchedule schedule(2, 7);
  int steps = 0;
  for (int i = 0; i < 5; ++i) schedule.wake(0, 30);
  schedule.wake(1, 10);
  while (schedule.advance([&](int) { ++steps; })) {
  }
  EXPECT_EQ(steps, 2);
  EXPECT_EQ(schedule.env(1).now(), 30);
}

TEST(SimSchedule, TimerFollowsTheLastStepsWish) {
  SimSchedule schedule(1, 7);
  std::vector<Nanos> steps;
  const auto step = [&](int) {
    steps.push_back(schedule.now());
    if (schedule.now() < 1'000) schedule.env(0).wake_at(schedule.now() + 500);
    schedule.env(0).wake_at(kForever);
  };
  for (Nanos when = 0; when <= 100; when += 10) schedule.wake(0, when);
  while (schedule.advance(step)) {
  }
  ASSERT_EQ(steps.size(), 13U) << "the wishes of the first ten steps were overtaken";
  EXPECT_EQ(steps[11], 600);
  EXPECT_EQ(steps[12], 1'100);
}

TEST(SimSchedule, RanksDrawTheirOwnNumbers) {
  SimSchedule first(2, 7), second(2, 7), other(2, 8);
  const std::uint64_t drawn = first.env(0).random();
  EXPECT_NE(drawn, first.env(1).random());
  EXPECT_EQ(drawn, second.env(0).random());
  EXPECT_NE(drawn, other.env(0).random());
}

TEST(SimDelay, HasItsLeastAndALongTail) {
  SimRandom random(5);
  const SimDelay delay{1'000, 5'000};
  Nanos least = kForever, most = 0, sum = 0;
  for (int i = 0; i < 10'000; ++i) {
    const Nanos drawn = delay.draw(random);
    least = std::min(least, drawn);
    most = std::max(most, drawn);
    sum += drawn;
  }
  EXPECT_GE(least, 1'000);
  EXPECT_LT(least, 1'100);
  EXPECT_GT(most, 25'000);
  EXPECT_NEAR(static_cast<double>(sum) / 10'000, 6'000, 300);
}

}  // namespace
}  // namespace lockstep::internal
