// Mistakes that no slip in a program of the table makes (mutation_test.cpp), each in two ranks' all_reduce.
#include "collectives/verify/verify.hpp"

#include <gtest/gtest.h>

#include <string>

namespace lockstep::internal {
namespace {

constexpr std::uint64_t kCount = 4;

Slice part(Space space, std::uint64_t offset = 0, std::uint64_t count = kCount) {
  return {space, kSelf, offset, count};
}

Step send(int peer, Slice from) {
  Step step;
  step.kind = StepKind::send;
  step.peer = peer;
  step.src = from;
  return step;
}

Step recv_reduce(int peer, bool received_first) {
  Step step;
  step.kind = StepKind::recv_reduce;
  step.finish = true;
  step.received_first = received_first;
  step.peer = peer;
  step.src = part(Space::input);
  step.dst = part(Space::output);
  return step;
}

Step copy(Slice from, Slice to) {
  Step step;
  step.src = from;
  step.dst = to;
  return step;
}

Step publish(std::uint32_t phase) {
  Step step;
  step.kind = StepKind::publish;
  step.phase = phase;
  return step;
}

/// Both send their input; rank 0 begins.
class Verify : public ::testing::Test {
 protected:
  Verify() {
    for (int rank = 0; rank < 2; ++rank) {
      Shape shape;
      shape.rank = rank;
      shape.world = 2;
      shape.count = kCount;
      set.shapes.push_back(shape);
      set.programs.emplace_back().lanes.emplace_back();
    }
    steps(0) = {send(1, part(Space::input)), recv_reduce(1, false)};
    steps(1) = {recv_reduce(0, true), send(0, part(Space::input))};
  }
  std::vector<Step>& steps(std::size_t rank) { return set.programs[rank].lanes[0].steps; }
  void expect_finding(const std::string& words) {
    const std::string finding = verify(set);
    EXPECT_NE(finding.find(words), std::string::npos) << finding;
  }
  ProgramSet set;
};

TEST_F(Verify, ProvesWhatIsRight) { EXPECT_EQ(verify(set), ""); }

TEST_F(Verify, AnInputIsNotWrittenTo) {
  steps(0).push_back(copy(part(Space::output), part(Space::input)));
  expect_finding("writes an input");
}

TEST_F(Verify, MessagesOfAPairStayInOneLane) {
  steps(0)[0] = send(1, part(Space::input, 0, 2));
  set.programs[0].lanes.emplace_back().steps = {send(1, part(Space::input, 2, 2))};
  expect_finding("is in another lane than earlier messages");
}

TEST_F(Verify, AMessageIsAsLongAsItsPlace) {
  steps(0)[0] = send(1, part(Space::input, 0, 3));
  expect_finding("receives 4 elements where 3 are sent");
}

TEST_F(Verify, AStepDoesNotWriteOverHalfOfWhatItReads) {
  steps(0).push_back(copy(part(Space::output, 0, 3), part(Space::output, 1, 3)));
  expect_finding("partly overlaps");
}

TEST_F(Verify, WhatNobodyWroteIsNotReadEvenInVain) {
  set.programs[0].scratch = kCount;
  steps(0).insert(steps(0).begin(), copy(part(Space::scratch), part(Space::output)));
  expect_finding("reads elements that nobody wrote");
}

TEST_F(Verify, ARankCountsOnce) {
  steps(0)[1].finish = false;
  Step again;
  again.kind = StepKind::reduce;
  again.finish = true;
  again.operand_count = 2;
  again.destinations = 2;
  again.destination_count = 1;
  set.programs[0].slices = {part(Space::output), part(Space::input), part(Space::output)};
  steps(0).push_back(again);
  expect_finding("counts a rank twice");
}

TEST_F(Verify, OnlyAReductionIsFinished) {
  steps(0)[0].finish = true;
  expect_finding("finishes, but reduces nothing");
}

TEST_F(Verify, ASliceStaysInItsSpace) {
  steps(0)[0] = send(1, part(Space::input, 1));
  expect_finding("leaves a space of 4 elements");
}

TEST_F(Verify, RanksThatAwaitOneAnotherNeverEnd) {
  set.medium = Medium::domain_registered;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    set.programs[rank].phases = 1;
    Step await = publish(1);
    await.kind = StepKind::await;
    steps(rank) = {await, publish(1)};
  }
  expect_finding("waits for ever");
}

TEST_F(Verify, PhasesArePublishedInTurn) {
  set.medium = Medium::domain_registered;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    set.programs[rank].phases = 2;
    steps(rank) = {publish(2), publish(1)};
  }
  expect_finding("publishes out of turn");
}

}  // namespace
}  // namespace lockstep::internal
