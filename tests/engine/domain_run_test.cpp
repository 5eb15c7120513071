// One rank's run of a collective in a domain, stepped by hand.
#include "collectives/engine/domain_run.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/engine/domain_memory.hpp"
#include "collectives/engine/limits.hpp"
#include "lib/memory/segment.hpp"
#include "lockstep/memory.hpp"
#include "tests/support/must.hpp"

namespace lockstep::internal {
namespace {

using testing::must;

/// What two members share.
struct Common {
  std::array<MemberControl, 2> control{};
  alignas(kLine) std::byte staging[2][kStagingBytes]{};
};

/// Two members in one address space, whose memory is named by its address.
class PlainDomain final : public Domain {
 public:
  PlainDomain(int rank, Common& common)
      : Domain(rank, {&common.control[0], &common.control[1]}), common_(common) {}
  std::byte* staging(int member) override { return common_.staging[member]; }
  Result<std::byte*> resolve(int, const SegmentRef& ref, std::size_t bytes) override {
    resolved.push_back(ref);
    reached.push_back(bytes);
    return own_address(ref, bytes);
  }
  bool can_pull() override { return static_cast<bool>(pulling); }
  Status pull(int, std::uint64_t address, void* to, std::size_t bytes) override {
    pulling();
    std::memcpy(to, reinterpret_cast<const void*>(address), bytes);
    return {};
  }
  void ring(int) override {}
  int bell_fd() override { return -1; }

  std::function<void()> pulling;     ///< Before the bytes are read.
  std::vector<SegmentRef> resolved;  ///< Of members.
  std::vector<std::size_t> reached;  ///< How far into them.

 private:
  Common& common_;
};

enum class Offered : bool { nothing, buffer };

struct Member {
  Member(int rank, Common& common, Offered offered = Offered::buffer, std::size_t count = 64)
      : domain(rank, common), numbers(count, 1.0f) {
    shape.rank = rank;
    shape.world = 2;
    shape.count = numbers.size();
    shape.segment = shape.count;
    shape.staging = kStagingBytes / 2 / sizeof(float);
    choice.staged = must(find_algorithm(Collective::all_reduce, Medium::domain_staged, "two_shot"));
    choice.registered = must(find_algorithm(Collective::all_reduce, Medium::domain_registered, "fused"));
    choice.shape = &shape;
    Combine combine;
    combine.type = DataType::f32;
    begin(combine, offered);
  }
  void begin(const Combine& combine, Offered offered = Offered::buffer) { begin(combine, places(offered)); }
  void begin(const Combine& combine, const OfferedBuffers& offered) {
    Buffers buffers;
    buffers.element = sizeof(float);
    buffers.self = shape.rank;
    buffers.input = buffers.output = reinterpret_cast<std::byte*>(numbers.data());
    buffers.hand_over = &hand_over;
    run.begin(choice, buffers, combine, {}, offered);
    run.enter({});
  }
  /// From the first member, of whose process this one is not.
  void begin_broadcast(PullTrial* trial = nullptr, std::uint64_t segment = 0) {
    shape.collective = Collective::broadcast;
    choice = {};
    choice.pulled = must(find_algorithm(Collective::broadcast, Medium::domain_pulled, "direct"));
    if (trial != nullptr)
      choice.staged = must(find_algorithm(Collective::broadcast, Medium::domain_staged, "direct"));
    choice.trial = trial;
    choice.shape = &shape;
    begin({}, elsewhere(segment));
  }
  OfferedBuffers elsewhere(std::uint64_t segment = 0) const {
    SegmentRef place = direct_ref(numbers.data());
    place.owner ^= 1u << shape.rank;
    place.segment = segment;
    return {place, place};
  }
  void broadcast_again() {
    const DomainPosition next = run.end();
    run.begin_again(numbers.data(), numbers.data(), {.sequence = next.calls}, elsewhere());
    run.enter(next);
  }
  /// To the first member, from where it lies.
  void begin_gather() {
    shape.collective = Collective::gather;
    choice = {};
    choice.registered = must(find_algorithm(Collective::gather, Medium::domain_registered, "direct"));
    choice.shape = &shape;
    shape.count = numbers.size() / 2;
    const SegmentRef place = direct_ref(numbers.data());
    begin({}, OfferedBuffers{place, shape.rank == 0 ? place : SegmentRef{.owner = kUnusedBuffer}});
  }
  /// The same call once more, on `other` numbers.
  void repeat(std::vector<float> other, Offered offered) {
    const DomainPosition next = run.end();
    numbers = std::move(other);
    run.begin_again(numbers.data(), numbers.data(), {.sequence = next.calls}, places(offered));
    run.enter(next);
  }
  OfferedBuffers places(Offered offered) const {
    const SegmentRef place = offered == Offered::buffer ? direct_ref(numbers.data()) : SegmentRef{};
    return {place, place};
  }
  Result<RunProgress> step() { return run.step(domain, cache); }

  PlainDomain domain;
  std::vector<float> numbers;
  HandOver hand_over{real_env()};
  Shape shape;
  DomainChoice choice;
  ProgramCache cache;
  DomainRun run;
};

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

/// A member that gives up marks all, and its caller may then write at once.
struct Leaver {
  MemberControl& mark;
  float& number;
  void leave() {
    mark.revoked.store(2);
    number = 7.0f;
  }
  static void combine(const void* in, void* inout, std::size_t count, void* leaver) {
    EXPECT_NE(static_cast<Leaver*>(leaver)->mark.in_use.load(), 0u);
    static_cast<Leaver*>(leaver)->leave();
    for (std::size_t i = 0; i < count; ++i) static_cast<float*>(inout)[i] += static_cast<const float*>(in)[i];
  }
};

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

// Where registered memory would not pay there is no such program.
TEST(DomainRun, RegisteredMemoryThatIsOnlyPulledIsExposedToReaders) {
  const auto common = std::make_unique<Common>();
  Member root(0, *common);
  root.domain.pulling = [] {};
  root.begin_broadcast(nullptr, 1);
  EXPECT_FALSE(must(root.step()).done);
  EXPECT_EQ(root.run.exposure(), Exposure::to_readers);
}

/// Time passes by looking at it.
class SlowClock final : public Env {
 public:
  Nanos now() noexcept override { return time_ += step; }
  std::uint64_t random() noexcept override { return 0; }
  void wake_at(Nanos) noexcept override {}
  Nanos step = 0;

 private:
  Nanos time_ = 0;
};

/// Of `calls` broadcasts, which were pulled. They take the root no time, and the reader more where they are
/// staged. `can_pull`: whether the root may, too.
std::vector<bool> pulled_of(int calls, bool can_pull = true) {
  const auto common = std::make_unique<Common>();
  Member root(0, *common), reader(1, *common);
  SlowClock clocks[2];
  PullTrial trials[2] = {PullTrial(clocks[0]), PullTrial(clocks[1])};
  std::vector<bool> pulled;
  bool now = false;
  if (can_pull) root.domain.pulling = [] {};
  reader.domain.pulling = [&] { now = true, clocks[1].step = 10; };
  for (int call = 0; call < calls; ++call) {
    now = false;
    clocks[1].step = 1000;
    if (call == 0) {
      root.begin_broadcast(&trials[0]);
      reader.begin_broadcast(&trials[1]);
    } else {
      root.broadcast_again();
      reader.broadcast_again();
    }
    for (bool done[2] = {false, false}; !done[0] || !done[1];) {
      if (!done[0]) done[0] = must(root.step()).done;
      if (!done[1]) done[1] = must(reader.step()).done;
    }
    pulled.push_back(now);
  }
  return pulled;
}

TEST(DomainRun, CallsTryBothWaysAndPullWhereThatTookTheSlowestRankLess) {
  EXPECT_EQ(pulled_of(9), (std::vector{false, false, false, true, true, true, true, true, true}));
  EXPECT_EQ(pulled_of(9, false), std::vector(9, false));
}

TEST(DomainRun, WhatWasPulledFromALeaverIsNoResult) {
  const auto common = std::make_unique<Common>();
  Member root(0, *common), reader(1, *common);
  Leaver leaver{common->control[1], root.numbers.back()};
  root.domain.pulling = [] {};
  reader.domain.pulling = [&] { leaver.leave(); };
  root.begin_broadcast();
  reader.begin_broadcast();
  EXPECT_FALSE(must(root.step()).done);
  EXPECT_EQ(root.run.exposure(), Exposure::to_readers);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(reader.step().status().code(), ErrorCode::aborted);
  EXPECT_EQ(reader.numbers.back(), 7.0f) << "nothing was pulled";
  EXPECT_FALSE(must(root.step()).done) << "the reader has told of a result";
}

}  // namespace
}  // namespace lockstep::internal
