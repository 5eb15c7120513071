// One rank's run of a collective in a domain, where members' private memory may be pulled.
#include <memory>
#include <vector>

#include "lockstep/memory.hpp"
#include "tests/engine/domain_member.hpp"

namespace lockstep::internal {
namespace {

using testing::must;

// Where registered memory would not pay there is no such program.
TEST(DomainPull, RegisteredMemoryThatIsOnlyPulledIsExposedToReaders) {
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

using Block = std::unique_ptr<void, decltype(&lockstep::free)>;
/// Registered memory for as much as the member has.
Block block_of(const Member& member) {
  return {lockstep::allocate(member.numbers.size() * sizeof(float)), &lockstep::free};
}

/// Of broadcasts, the first of them on private buffers, the others on private or registered ones, which were
/// pulled. They take the root no time, and the reader more where they are staged. `can_pull`: whether the
/// root may, too.
std::vector<bool> pulled_of(const std::vector<bool>& registered, bool can_pull = true) {
  const auto common = std::make_unique<Common>();
  Member root(0, *common), reader(1, *common);
  SlowClock clocks[2];
  PullTrial trials[2] = {PullTrial(clocks[0]), PullTrial(clocks[1])};
  const Block blocks[2] = {block_of(root), block_of(reader)};
  bool now = false;
  if (can_pull) root.domain.pulling = [] {};
  reader.domain.pulling = [&] { now = true, clocks[1].step = 10; };
  root.begin_broadcast(&trials[0]);
  reader.begin_broadcast(&trials[1]);
  std::vector<bool> pulled;
  for (const bool mapped : registered) {
    now = false;
    clocks[1].step = 1000;
    if (!pulled.empty()) {
      root.broadcast_again(mapped ? blocks[0].get() : nullptr);
      reader.broadcast_again(mapped ? blocks[1].get() : nullptr);
    }
    for (bool done[2] = {false, false}; !done[0] || !done[1];) {
      if (!done[0]) done[0] = must(root.step()).done;
      if (!done[1]) done[1] = must(reader.step()).done;
    }
    pulled.push_back(now);
  }
  return pulled;
}

TEST(DomainPull, CallsTryBothWaysAndPullWhereThatTookTheSlowestRankLess) {
  EXPECT_EQ(pulled_of(std::vector(9, false)),
            (std::vector{false, false, false, true, true, true, true, true, true}));
  EXPECT_EQ(pulled_of(std::vector(9, false), false), std::vector(9, false));
}

// Nor do they count among the trials.
TEST(DomainPull, CallsOnRegisteredBuffersAreNotPulled) {
  EXPECT_EQ(pulled_of({false, false, false, true, false, true, true, false, false, false}),
            (std::vector{false, false, false, false, true, false, false, true, true, true}));
}

TEST(DomainPull, WhatWasPulledFromALeaverIsNoResult) {
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
