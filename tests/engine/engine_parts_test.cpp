// What an engine keeps: the operations in flight, its calls and those of its peers, what other threads ask
// for.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "collectives/engine/call_history.hpp"
#include "collectives/engine/in_flight.hpp"
#include "collectives/engine/revoke_requests.hpp"

namespace lockstep::internal {
namespace {

void make(Operation& operation, std::uint64_t sequence, int priority, bool urgent) {
  operation.sequence = sequence;
  operation.call.priority = priority;
  operation.urgent = urgent;
}

std::vector<std::uint64_t> sequences(const InFlight::List& operations) {
  std::vector<std::uint64_t> result;
  for (const Operation* operation : operations) result.push_back(operation->sequence);
  return result;
}

CallNote call_of(std::uint64_t sequence, std::uint64_t count, bool urgent = false) {
  CallNote call{sequence + 1, {}, urgent};
  call.facts.count = count;
  return call;
}

TEST(InFlight, RunsByPriorityThenInTheOrderOfTheCalls) {
  InFlight in_flight;
  std::array<Operation, 4> operations;
  const int priorities[] = {0, 5, 0, 5};
  for (std::size_t i = 0; i < operations.size(); ++i) {
    make(operations[i], i, priorities[i], priorities[i] > 0);
    in_flight.start(operations[i]);
  }
  EXPECT_EQ(sequences(in_flight.active()), (std::vector<std::uint64_t>{1, 3, 0, 2}));
  EXPECT_EQ(in_flight.oldest(true)->sequence, 1u);
  EXPECT_EQ(in_flight.oldest(false)->sequence, 0u);
  in_flight.retire(operations[1]);
  EXPECT_EQ(in_flight.oldest(true)->sequence, 3u);
  EXPECT_EQ(in_flight.find(1), nullptr);
  EXPECT_EQ(in_flight.find(2), &operations[2]);
}

TEST(InFlight, WhatIsUrgentDoesNotWaitForTheRoomOfWhatIsNot) {
  InFlight in_flight;
  std::vector<Operation> running(kMaxInFlight);
  for (std::size_t i = 0; i < running.size(); ++i) {
    make(running[i], i, 0, false);
    in_flight.start(running[i]);
  }
  EXPECT_FALSE(in_flight.has_room(false));
  EXPECT_TRUE(in_flight.has_room(true));
  std::array<Operation, 2> waiting;
  make(waiting[0], kMaxInFlight, 0, false);
  make(waiting[1], kMaxInFlight + 1, 1, true);
  for (Operation& operation : waiting) in_flight.queue(operation);
  EXPECT_EQ(in_flight.take_pending(), &waiting[1]);
  EXPECT_EQ(in_flight.take_pending(), nullptr);
  EXPECT_TRUE(in_flight.has_pending(false));
  EXPECT_EQ(in_flight.find(kMaxInFlight), &waiting[0]);
  in_flight.retire(running[7]);
  EXPECT_EQ(in_flight.take_pending(), &waiting[0]);
  EXPECT_FALSE(in_flight.has_pending(false));
}

TEST(InFlight, OneAfterTheOtherIsInFrontOfTheDomain) {
  InFlight in_flight;
  std::array<Operation, 2> operations;
  for (Operation& operation : operations) {
    make(operation, static_cast<std::uint64_t>(&operation - operations.data()), 0, false);
    in_flight.start(operation);
    in_flight.enter_domain(operation);
  }
  EXPECT_TRUE(in_flight.is_front_of_domain(operations[0]));
  EXPECT_FALSE(in_flight.is_front_of_domain(operations[1]));
  EXPECT_TRUE(in_flight.retire(operations[0]));
  EXPECT_TRUE(in_flight.is_front_of_domain(operations[1]));
  EXPECT_EQ(sequences(in_flight.active()), std::vector<std::uint64_t>{1});
}

TEST(InFlight, HasPlacesForAllThatThereMayBe) {
  InFlight in_flight;
  in_flight.reserve(1000);
  EXPECT_GE(in_flight.pending().capacity(), 1000u);
  EXPECT_GE(in_flight.messages().capacity(), 1000u);
}

TEST(CallHistory, KnowsTheLastCalls) {
  CallHistory history(nullptr, 0, 3);
  for (std::uint64_t sequence = 0; sequence <= kRecentCalls; ++sequence) history.note(call_of(sequence, 9));
  EXPECT_FALSE(history.recent(0));
  ASSERT_TRUE(history.recent(kRecentCalls));
  EXPECT_TRUE(history.recent(kRecentCalls)->is_as(call_of(kRecentCalls, 9)));
  EXPECT_FALSE(history.recent(kRecentCalls + 1));
}

TEST(CallHistory, NamesTheFirstPeerThatWaitsWithAnotherCall) {
  CallHistory history(nullptr, 0, 5);
  history.keep_probe(1, call_of(5, 9));
  history.keep_probe(2, call_of(5, 8));
  history.keep_probe(3, call_of(5, 6));
  history.keep_probe(4, call_of(6, 7));
  CallNote theirs;
  EXPECT_EQ(history.settle(call_of(5, 9), theirs), 2);
  EXPECT_EQ(theirs.facts.count, 8u);
  EXPECT_TRUE(history.has_probes()) << "rank 4 waits for a later call";
  EXPECT_EQ(history.settle(call_of(6, 7), theirs), std::nullopt);
  EXPECT_FALSE(history.has_probes());
}

TEST(CallHistory, APriorityAboveNoneIsAnotherCall) {
  CallHistory history(nullptr, 0, 2);
  history.keep_probe(1, call_of(0, 9, true));
  CallNote theirs;
  EXPECT_EQ(history.settle(call_of(0, 9), theirs), 1);
}

TEST(RevokeRequests, TheFirstReasonStays) {
  RevokeRequests requests(2);
  std::vector<bool> lost(2);
  EXPECT_FALSE(requests.take());
  EXPECT_TRUE(requests.standing(lost).ok());
  requests.ask(Status(ErrorCode::aborted, "enough"));
  requests.ask(Status(ErrorCode::timeout, "too late"));
  EXPECT_TRUE(requests.take());
  EXPECT_FALSE(requests.take());
  EXPECT_EQ(requests.standing(lost).message(), "enough");
  requests.look_again();
  EXPECT_TRUE(requests.take());
}

TEST(RevokeRequests, WhoIsLostStaysSo) {
  RevokeRequests requests(3);
  std::vector<bool> lost{true, false, false};
  requests.lose(2);
  EXPECT_TRUE(requests.standing(lost).ok());
  EXPECT_EQ(lost, (std::vector<bool>{true, false, true}));
}

}  // namespace
}  // namespace lockstep::internal
