// Faults on simulated networks: every wait ends, on every rank, with an error that names the culprit, and no
// memory is harmed.
#include <gtest/gtest.h>

#include "tests/engine/algorithm_cases.hpp"
#include "tests/engine/sim_world.hpp"
#include "tests/support/sanitized.hpp"

namespace lockstep::internal {
namespace {

SimCall all_reduce(int world, std::size_t count) {
  SimCall call;
  call.what.world = world;
  call.what.count = count;
  return call;
}

/// The row + 1 of an algorithm in which every rank waits for every other, so that all know who is late.
int direct_all_reduce() {
  const auto row = find_algorithm(Collective::all_reduce, Medium::links, "direct");
  return number_of(*row.value());
}

/// What every live rank must have seen in the end.
void expect_all_failed(SimWorld& world, int ranks, ErrorCode code, int culprit) {
  for (int rank = 0; rank < ranks; ++rank) {
    if (world.schedule().crashed(rank)) continue;
    ASSERT_FALSE(world.outcomes(rank).empty());
    const SimOutcome& last = world.outcomes(rank).back();
    EXPECT_EQ(last.status.code(), code) << "rank " << rank << ": " << last.status.message();
    EXPECT_EQ(last.status.culprit(), culprit) << "rank " << rank << ": " << last.status.message();
    for (const SimOutcome& outcome : world.outcomes(rank)) EXPECT_EQ(outcome.wrong, "") << "rank " << rank;
  }
}

Nanos first_failure(const SimWorld& world, int rank) {
  for (const SimOutcome& outcome : world.outcomes(rank)) {
    if (!outcome.status.ok()) return outcome.ended;
  }
  return kForever;
}

struct Case {
  const char* name;
  bool domain;
  Nanos loss_notice;
  bool urgent = false;  // Every third call, with several calls in flight.
};

class SimCrash : public ::testing::TestWithParam<Case> {};

TEST_P(SimCrash, EverySurvivorNamesTheDeadRankWithinASecond) {
  for (std::uint64_t seed = 1; seed <= lockstep::testing::runs_of(40); ++seed) {
    SimWorldOptions options;
    options.world = 2 + static_cast<int>(seed % 7);
    options.seed = seed;
    options.network.domain = GetParam().domain;
    options.network.links.in_flight = 2'000;
    options.loss_notice = GetParam().loss_notice;
    if (GetParam().urgent) options.concurrency = 8;
    SimWorld world(options);
    for (int i = 0; i < 2'000; ++i) {
      SimCall call = all_reduce(options.world, 100 + seed * 97 % 3'000);
      if (GetParam().urgent && i % 3 == 2) call.priority = 1;
      world.add(call);
    }
    const int dead = static_cast<int>(seed % static_cast<std::uint64_t>(options.world));
    const Nanos when = static_cast<Nanos>(seed * 77'777);
    world.schedule().at(when, [&] { world.schedule().crash(dead); });
    ASSERT_TRUE(world.run(10 * kVirtualSecond)) << "seed " << seed;
    expect_all_failed(world, options.world, ErrorCode::peer_lost, dead);
    for (int rank = 0; rank < options.world; ++rank) {
      if (rank == dead) continue;
      EXPECT_LT(first_failure(world, rank), when + kVirtualSecond) << "rank " << rank << ", seed " << seed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sim, SimCrash,
                         ::testing::Values(Case{"links", false, 50 * kVirtualMillisecond},
                                           Case{"links_without_notice", false, 0},
                                           Case{"links_some_urgent", false, 50 * kVirtualMillisecond, true},
                                           Case{"links_some_urgent_without_notice", false, 0, true},
                                           Case{"domain", true, 50 * kVirtualMillisecond}),
                         [](const auto& tested) { return tested.param.name; });

TEST(SimCrash, AThousandRanksLearnOfOneDeath) {
  SimWorldOptions options;
  options.world = 256;
  options.network.links.delivery = SimDelivery::whole;
  SimWorld world(options);
  for (int i = 0; i < 20; ++i) world.add(all_reduce(options.world, 300));
  world.schedule().at(kVirtualMillisecond / 2, [&] { world.schedule().crash(100); });
  ASSERT_TRUE(world.run(10 * kVirtualSecond));
  expect_all_failed(world, options.world, ErrorCode::peer_lost, 100);
}

TEST(SimCrash, APeerThatDidItsPartBeforeItWentHarmsNobody) {
  std::uint64_t crashes = 0;
  for (std::uint64_t seed = 1; seed <= lockstep::testing::runs_of(100); ++seed) {
    SimWorldOptions options;
    options.seed = seed;
    options.network.domain = true;
    options.loss_notice = 1;  // Comes before the ring that tells rank 0 to look.
    SimWorld world(options);
    world.add(all_reduce(options.world, 4));
    constexpr Nanos kStep = 100;
    for (Nanos when = kStep; when < kVirtualMillisecond; when += kStep) {
      world.schedule().at(when, [&] {
        const std::vector<SimOutcome>& theirs = world.outcomes(1);
        const bool done = !theirs.empty() && theirs.front().ended > 0;
        if (done && !world.schedule().crashed(1)) world.schedule().crash(1);
      });
    }
    ASSERT_TRUE(world.run()) << "seed " << seed;
    crashes += world.schedule().crashed(1) ? 1 : 0;
    const SimOutcome& outcome = world.outcomes(0).front();
    EXPECT_TRUE(outcome.status.ok()) << "seed " << seed << ": " << outcome.status.message();
    EXPECT_EQ(outcome.wrong, "") << "seed " << seed;
  }
  EXPECT_GT(crashes, lockstep::testing::runs_of(100) / 10)
      << "rank 0 was always done first: nothing was tested";
}

/// One rank deviates in one call.
struct Deviation {
  const char* name;
  void (*apply)(SimCall&);
  const char* theirs;  ///< What the message must say of the deviating rank's call.
};

constexpr Deviation kDeviations[] = {
    {"count", [](SimCall& c) { c.what.count = 98; }, "f32 x 98"},
    {"larger_count", [](SimCall& c) { c.what.count = 5'000; }, "f32 x 5000"},
    {"type", [](SimCall& c) { c.what.type = DataType::i32; }, "i32 x 99"},
    {"op", [](SimCall& c) { c.what.op = ReduceOp::max; }, "max"},
    {"collective", [](SimCall& c) { c.what.collective = Collective::broadcast; }, "broadcast"},
    {"barrier", [](SimCall& c) { c.what.collective = Collective::barrier; }, "barrier"},
    {"root", [](SimCall& c) { c.what.root = 1; }, "root 1"},
};
/// Where there is a domain this makes no difference.
constexpr Deviation kOwnPriority{"priority", [](SimCall& c) { c.priority = 1; }, "with a priority above 0"};

class SimMismatch : public ::testing::TestWithParam<std::tuple<Deviation, bool>> {};

TEST_P(SimMismatch, IsNamedOnAllRanks) {
  const auto& [deviation, domain] = GetParam();
  const bool rooted = std::string(deviation.name) == "root";
  for (std::uint64_t seed = 1; seed <= lockstep::testing::runs_of(200); ++seed) {
    SimWorldOptions options;
    options.world = 2 + static_cast<int>(seed % 4);
    options.seed = seed;
    options.network.domain = domain;
    SimWorld world(options);
    const int odd = static_cast<int>(seed % static_cast<std::uint64_t>(options.world));
    SimCall usual = all_reduce(options.world, 99);
    if (rooted) usual.what.collective = Collective::reduce;
    SimCall deviating = usual;
    deviation.apply(deviating);
    for (int rank = 0; rank < options.world; ++rank) {
      world.add(rank, usual);
      world.add(rank, rank == odd ? deviating : usual);
      // A rank whose part was to send, and to which all had sent, learns of it at its next call.
      SimCall barrier = usual;
      barrier.what.collective = Collective::barrier;
      world.add(rank, barrier);
      world.add(rank, barrier);
    }
    ASSERT_TRUE(world.run(10 * kVirtualSecond)) << "seed " << seed;
    for (int rank = 0; rank < options.world; ++rank) {
      const auto& outcomes = world.outcomes(rank);
      const Status& last = outcomes.back().status;
      EXPECT_EQ(last.code(), ErrorCode::mismatch)
          << "rank " << rank << ", seed " << seed << ": " << last.message();
      EXPECT_NE(last.message().find(deviation.theirs), std::string::npos) << last.message();
      EXPECT_NE(last.message().find("rank " + std::to_string(odd) + " "), std::string::npos)
          << last.message();
      for (const SimOutcome& outcome : outcomes) EXPECT_EQ(outcome.wrong, "") << "rank " << rank;
    }
  }
}

std::string name_of_deviation(const ::testing::TestParamInfo<std::tuple<Deviation, bool>>& tested) {
  return std::string(std::get<0>(tested.param).name) + (std::get<1>(tested.param) ? "_domain" : "_links");
}
INSTANTIATE_TEST_SUITE_P(Sim, SimMismatch,
                         ::testing::Combine(::testing::ValuesIn(kDeviations), ::testing::Bool()),
                         name_of_deviation);
INSTANTIATE_TEST_SUITE_P(SimUrgent, SimMismatch,
                         ::testing::Combine(::testing::Values(kOwnPriority), ::testing::Values(false)),
                         name_of_deviation);

class SimFaults : public ::testing::TestWithParam<bool> {
 protected:
  SimWorldOptions options(std::uint64_t seed) const {
    SimWorldOptions result;
    result.world = 4;
    result.seed = seed;
    result.network.domain = GetParam();
    return result;
  }
};

TEST_P(SimFaults, AStoppedRankDelaysAndHarmsNothing) {
  for (std::uint64_t seed = 1; seed <= lockstep::testing::runs_of(10); ++seed) {
    SimWorld world(options(seed));
    for (int i = 0; i < 20; ++i) world.add(all_reduce(4, 1'000));
    world.schedule().at(60'000, [&] { world.schedule().pause(2); });
    world.schedule().at(5 * kVirtualSecond, [&] { world.schedule().resume(2); });
    EXPECT_EQ(world.run_and_check(), "") << "seed " << seed;
    EXPECT_GT(world.schedule().now(), 5 * kVirtualSecond);
  }
}

TEST_P(SimFaults, ADeadlineNamesWhoIsLate) {
  for (std::uint64_t seed = 1; seed <= lockstep::testing::runs_of(10); ++seed) {
    SimWorld world(options(seed));
    for (int i = 0; i < 20; ++i) {
      SimCall call = all_reduce(4, 1'000);
      call.algorithm = direct_all_reduce();
      call.timeout = kVirtualSecond;
      world.add(call);
    }
    world.schedule().at(60'000, [&] { world.schedule().pause(2); });
    world.schedule().at(5 * kVirtualSecond, [&] { world.schedule().resume(2); });
    EXPECT_TRUE(world.run());
    for (int rank = 0; rank < 4; ++rank) {
      const Status& last = world.outcomes(rank).back().status;
      EXPECT_EQ(last.code(), ErrorCode::timeout) << "rank " << rank << ": " << last.message();
      EXPECT_NE(last.message().find("rank 2"), std::string::npos)
          << "rank " << rank << ": " << last.message();
      EXPECT_LT(first_failure(world, rank), rank == 2 ? 6 * kVirtualSecond : 2 * kVirtualSecond);
    }
  }
}

TEST_P(SimFaults, AbortOnOneRankEndsAll) {
  for (std::uint64_t seed = 1; seed <= lockstep::testing::runs_of(10); ++seed) {
    SimWorld world(options(seed));
    for (int i = 0; i < 2'000; ++i) world.add(all_reduce(4, 1'000));
    world.schedule().at(200'000, [&] {
      world.engine(1).request_revoke(Status(ErrorCode::aborted, "rank 1 has had enough", 1));
      world.schedule().wake(1, world.schedule().now());
    });
    ASSERT_TRUE(world.run(10 * kVirtualSecond));
    expect_all_failed(world, 4, ErrorCode::aborted, 1);
    for (int rank = 0; rank < 4; ++rank) {
      EXPECT_NE(world.outcomes(rank).back().status.message().find("had enough"), std::string::npos);
      EXPECT_LT(first_failure(world, rank), kVirtualSecond);
    }
  }
}

// Between the two it may lose its processor, and who finds the fingerprint may be the thread that all depend
// on.
TEST(SimDifference, WhatAPeerCalledIsRecordedAfterItsFingerprint) {
  SimWorldOptions options;
  options.network.domain = true;
  SimWorld world(options);
  Engine& engine = world.engine(0);
  MemberControl& peer = engine.transport()->domain()->control(1);
  peer.inline_line[0].fingerprint = 1;
  peer.inline_line[0].flag.store(1);
  Operation* const mine = engine.start(Call());  // A barrier.
  engine.step();
  EXPECT_FALSE(mine->done.load());
  CallFacts theirs;
  theirs.collective = Collective::all_gather;
  peer.recent[0].write(0, theirs);
  engine.step();
  EXPECT_TRUE(mine->done.load());
  EXPECT_NE(mine->status.message().find("called all_gather"), std::string::npos) << mine->status.message();
  engine.release(mine);
}

INSTANTIATE_TEST_SUITE_P(Sim, SimFaults, ::testing::Bool(),
                         [](const auto& tested) { return tested.param ? "domain" : "links"; });

}  // namespace
}  // namespace lockstep::internal
