// One rank's run of a collective in a domain, stepped by hand.
#include "collectives/engine/domain_run.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "collectives/engine/domain_memory.hpp"
#include "collectives/engine/limits.hpp"
#include "lockstep/memory.hpp"
#include "tests/engine/domain_member.hpp"

namespace lockstep::internal {
namespace {

using testing::must;

TEST(DomainRun, TwoMembersReduceInPlace) {
  const auto common = std::make_unique<Common>();
  Member first(0, *common), second(1, *common);
  EXPECT_FALSE(must(first.step()).done);
  EXPECT_FALSE(must(second.step()).done);  // It wrote its part, and waits for the other's.
  EXPECT_TRUE(must(first.step()).done);
  EXPECT_TRUE(must(second.step()).done);
  EXPECT_EQ(first.numbers, std::vector<float>(64, 2.0f));
  EXPECT_EQ(second.numbers, std::vector<float>(64, 2.0f));
}

TEST(DomainRun, ARepeatedCallGoesTheWayOfItsOwnBuffers) {
  const auto common = std::make_unique<Common>();
  Member first(0, *common), second(1, *common);
  const auto finish = [&] {
    for (bool done = false; !done;) {
      done = must(first.step()).done;
      done = must(second.step()).done && done;
    }
  };
  finish();
  for (const Offered offered : {Offered::buffer, Offered::nothing, Offered::nothing, Offered::buffer}) {
    first.repeat(std::vector<float>(64, 3.0f), Offered::buffer);
    second.repeat(std::vector<float>(64, 4.0f), offered);
    EXPECT_FALSE(must(first.step()).done);
    EXPECT_FALSE(must(second.step()).done);
    EXPECT_EQ(common->control[1].in_use.load(), 0u);  // It waits, and uses nobody's memory.
    EXPECT_EQ(first.numbers.back() == 7.0f, offered == Offered::buffer);  // Written by the second.
    finish();
    EXPECT_EQ(first.numbers, std::vector<float>(64, 7.0f));
    EXPECT_EQ(second.numbers, std::vector<float>(64, 7.0f));
  }
}

// The engine looks once more at a call that failed before it tells of the loss.
TEST(DomainRun, ARevokedCallMayBeSteppedAgainAndTouchesNothing) {
  const auto common = std::make_unique<Common>();
  Member first(0, *common), second(1, *common);
  EXPECT_FALSE(must(second.step()).done);
  common->control[0].revoked.store(1);  // Between the offers and the declaration of writing.
  for (int i = 0; i < 2; ++i) EXPECT_EQ(first.step().status().code(), ErrorCode::aborted);
  EXPECT_EQ(common->control[0].in_use.load(), 0u);
  first.run.abandon(first.domain);
  EXPECT_EQ(second.numbers, std::vector<float>(64, 1.0f));
}

// A member that has seen all offers may write while another has yet to look.
TEST(DomainRun, IsExposedFromItsOwnOfferOn) {
  const auto common = std::make_unique<Common>();
  Member first(0, *common), second(1, *common);
  EXPECT_EQ(first.run.exposure(), Exposure::none);
  EXPECT_FALSE(must(first.step()).done);
  EXPECT_EQ(first.run.exposure(), Exposure::to_writers);
  EXPECT_FALSE(must(second.step()).done);
  EXPECT_EQ(first.numbers.back(), 2.0f);
  EXPECT_EQ(first.run.exposure(), Exposure::to_writers);
  first.run.abandon(first.domain);
  EXPECT_EQ(first.run.exposure(), Exposure::none);
}

TEST(DomainRun, IsNotExposedWhereOnePrivateBufferIsEnoughToKnow) {
  const auto common = std::make_unique<Common>();
  Member first(0, *common), second(1, *common, Offered::nothing);
  EXPECT_FALSE(must(second.step()).done);
  EXPECT_EQ(second.run.exposure(), Exposure::none);
  EXPECT_FALSE(must(first.step()).done);
  EXPECT_EQ(first.run.exposure(), Exposure::none);
  while (!must(first.step()).done) must(second.step());
  EXPECT_EQ(first.numbers, std::vector<float>(64, 2.0f));
}

TEST(DomainRun, StopsWritingWithinALongMessage) {
  const auto common = std::make_unique<Common>();
  constexpr std::size_t kCount = 8 * kReduceBlockBytes / sizeof(float);
  Member first(0, *common, Offered::buffer, kCount), second(1, *common, Offered::buffer, kCount);
  EXPECT_FALSE(must(first.step()).done);
  EXPECT_FALSE(must(second.step()).done);
  ASSERT_TRUE(second.run.has_work());
  common->control[1].revoked.store(1);
  EXPECT_EQ(second.step().status().code(), ErrorCode::aborted);
  EXPECT_EQ(first.numbers.back(), 1.0f);
}

/// A device that is lost with a step enqueued.
class LostMemory final : public DomainMemory {
 public:
  explicit LostMemory(const MemberControl& own) : own_(own) {}
  Status run(const Program&, const Step&, const Buffers&, const Combine&) override {
    return Status(ErrorCode::system, "the device is lost");
  }
  Status complete() override {
    EXPECT_NE(own_.in_use.load(), 0u) << "what is enqueued may use the members' memory";
    ++completed;
    return {};
  }
  SegmentRef reference(const void*, std::size_t) override { return {}; }
  Result<Selection> choose(const CallFacts&, const Shape&) override { return Selection{}; }

  int completed = 0;

 private:
  const MemberControl& own_;
};

TEST(DomainRun, WhatADeviceMayStillRunIsAwaitedBeforeItsUseIsOver) {
  const auto common = std::make_unique<Common>();
  Member first(0, *common), second(1, *common);
  LostMemory memory(common->control[1]);
  second.choice.memory = &memory;
  Combine combine;
  combine.type = DataType::f32;
  second.begin(combine);
  EXPECT_FALSE(must(first.step()).done);
  EXPECT_EQ(second.step().status().code(), ErrorCode::system);
  second.run.abandon(second.domain);
  EXPECT_EQ(memory.completed, 1);
  EXPECT_EQ(common->control[1].in_use.load(), 0u);
}

/// In the only block, which the look before it has passed.
TEST(DomainRun, WhatALeaverMayHaveOverwrittenIsNoResult) {
  const auto common = std::make_unique<Common>();
  Member first(0, *common), second(1, *common);
  Leaver leaver{common->control[1], first.numbers.back()};
  Combine combine;
  combine.type = DataType::f32;
  combine.op = ReduceOp::user;
  combine.user = {&Leaver::combine, &leaver};
  second.begin(combine);
  EXPECT_FALSE(must(first.step()).done);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(second.step().status().code(), ErrorCode::aborted);
  EXPECT_EQ(common->control[1].in_use.load(), 0u);
  EXPECT_FALSE(must(first.step()).done) << "the second has told of a result";
}

// As above, by a failure of another communicator. The engine looks twice there too, and tells what it hears
// last.
TEST(DomainRun, WhoseMemoryWasTakenSaysSoEachTime) {
  const auto common = std::make_unique<Common>();
  Member first(0, *common), second(1, *common);
  const std::size_t bytes = first.numbers.size() * sizeof(float);
  const std::unique_ptr<void, decltype(&lockstep::free)> block(lockstep::allocate(bytes), &lockstep::free);
  const SegmentRef place = direct_ref(block.get());
  first.run.begin_again(block.get(), block.get(), {}, {place, place, bytes, bytes});
  first.run.enter({});
  EXPECT_FALSE(must(first.step()).done);
  EXPECT_FALSE(must(second.step()).done);
  ASSERT_TRUE(make_private(block.get(), bytes).ok());
  for (int i = 0; i < 2; ++i) {
    const Status status = first.step().status();
    EXPECT_NE(status.message().find("made memory private"), std::string::npos) << status.message();
    EXPECT_EQ(status.culprit(), 0);
  }
  EXPECT_FALSE(must(second.step()).done) << "the first has told of a result";
}

// What it has offered is read where it is, and is as it was.
TEST(DomainRun, WhoseMemoryIsTakenThatIsOnlyReadDoesNotMind) {
  const auto common = std::make_unique<Common>();
  Member first(0, *common), second(1, *common);
  const std::size_t bytes = first.numbers.size() * sizeof(float);
  const std::unique_ptr<void, decltype(&lockstep::free)> block(lockstep::allocate(bytes), &lockstep::free);
  const SegmentRef place = direct_ref(block.get());
  for (Member* member : {&first, &second}) {
    member->shape.collective = Collective::broadcast;
    member->choice.registered =
        must(find_algorithm(Collective::broadcast, Medium::domain_registered, "direct"));
    member->choice.staged = nullptr;
    member->choice.shape = &member->shape;
    member->begin({}, {place, place, bytes, bytes});
  }
  first.run.begin_again(block.get(), block.get(), {}, {place, place, bytes, bytes});
  first.run.enter({});
  EXPECT_FALSE(must(first.step()).done);
  ASSERT_TRUE(make_private(block.get(), bytes).ok());
  EXPECT_TRUE(must(second.step()).done);
  EXPECT_TRUE(must(first.step()).done);
}

// Its own part was done before: the other may have written to what is not its memory any more.
TEST(DomainRun, WhoseMemoryIsTakenWhileItWaitsForOthersSaysSoToo) {
  const auto common = std::make_unique<Common>();
  Member first(0, *common), second(1, *common);
  const std::size_t bytes = second.numbers.size() * sizeof(float);
  const std::unique_ptr<void, decltype(&lockstep::free)> block(lockstep::allocate(bytes), &lockstep::free);
  const SegmentRef place = direct_ref(block.get());
  second.run.begin_again(block.get(), block.get(), {}, {place, place, bytes, bytes});
  second.run.enter({});
  EXPECT_FALSE(must(first.step()).done);
  EXPECT_FALSE(must(second.step()).done);
  ASSERT_TRUE(make_private(block.get(), bytes).ok());
  must(first.step());
  const Status status = second.step().status();
  EXPECT_NE(status.message().find("made memory private"), std::string::npos) << status.message();
}

// Its owner may have freed it: nothing of what it has to do waits for this rank.
TEST(DomainRun, MemoryThatTheProgramDoesNotTouchIsNotMapped) {
  const auto common = std::make_unique<Common>();
  Member root(0, *common), giver(1, *common);
  giver.numbers.assign(64, 5.0f);
  root.begin_gather();
  giver.begin_gather();
  EXPECT_FALSE(must(root.step()).done);
  EXPECT_TRUE(must(giver.step()).done);
  EXPECT_TRUE(must(root.step()).done);
  EXPECT_EQ(root.numbers.back(), 5.0f);
  EXPECT_EQ(giver.domain.resolved, std::vector<SegmentRef>{direct_ref(root.numbers.data())});
  EXPECT_EQ(root.domain.resolved, std::vector<SegmentRef>{});
}

// A member's segment may end before that: what it says is checked against what the program needs.
TEST(DomainRun, AsksForAsMuchOfAMembersMemoryAsTheProgramTouches) {
  const auto common = std::make_unique<Common>();
  Member root(0, *common), giver(1, *common);
  root.begin_gather();
  giver.begin_gather();
  EXPECT_FALSE(must(root.step()).done);
  EXPECT_TRUE(must(giver.step()).done);
  EXPECT_EQ(giver.domain.reached, std::vector<std::size_t>{root.numbers.size() * sizeof(float)});
}

TEST(DomainRun, AMemberThatOffersNothingWhereItsMemoryIsUsedIsToBlame) {
  const auto common = std::make_unique<Common>();
  Member root(0, *common), giver(1, *common);
  root.begin_gather();
  giver.begin_gather();
  EXPECT_FALSE(must(root.step()).done);
  Offer& offer = common->control[0].offer[0];
  offer.in_place = 0;
  offer.output.owner = kUnusedBuffer;
  const Status status = giver.step().status();
  EXPECT_EQ(status.code(), ErrorCode::internal);
  EXPECT_EQ(status.culprit(), 0) << status.message();
}

}  // namespace
}  // namespace lockstep::internal
