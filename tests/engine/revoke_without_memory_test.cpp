// A revoke that finds no memory at one moment or from one moment on: what is under way ends all the same.
#include <gtest/gtest.h>

#include <string>

#include "tests/engine/sim_world.hpp"
#include "tests/support/scarce_memory.hpp"

namespace lockstep::internal {
namespace {

using lockstep::testing::ScarceMemory;

constexpr Nanos kTimeout = 10 * kVirtualMillisecond;

SimCall all_reduce(std::size_t count) {
  SimCall call;
  call.what.world = 2;
  call.what.count = count;
  call.timeout = kTimeout;
  return call;
}

/// Rank 0 has two collectives under way and a message, which all need rank 1.
struct Waiting {
  explicit Waiting(bool domain) : world(options(domain)) {
    world.add(0, all_reduce(100));
    world.add(0, all_reduce(10'000));
    world.add(0, SimMessage{false, 1, 0, 100});
  }
  static SimWorldOptions options(bool domain) {
    SimWorldOptions made;
    made.network.domain = domain;
    made.concurrency = 3;
    made.skew = 0;
    return made;
  }
  Engine& engine() { return world.engine(0); }

  SimWorld world;
};

/// How a revoke comes about: `prepare` with memory, `revoke` without.
struct Revoke {
  const char* name;
  bool domain;
  ErrorCode code;
  void (*prepare)(Waiting&);
  void (*revoke)(Waiting&);
};

Status g_why;
std::string g_evidence;

const Revoke kRevokes[] = {
    {"AbortOverLinks", false, ErrorCode::aborted,
     [](Waiting&) { g_why = Status(ErrorCode::aborted, "the caller has had enough of waiting for rank 1"); },
     [](Waiting& waiting) { waiting.engine().request_revoke(std::move(g_why)); }},
    {"AbortInADomain", true, ErrorCode::aborted,
     [](Waiting&) { g_why = Status(ErrorCode::aborted, "the caller has had enough of waiting for rank 1"); },
     [](Waiting& waiting) { waiting.engine().request_revoke(std::move(g_why)); }},
    {"LossOverLinks", false, ErrorCode::peer_lost,
     [](Waiting&) { g_evidence = "its process has ended, as the operating system says"; },
     [](Waiting& waiting) { waiting.engine().on_loss(1, g_evidence); }},
    {"PeersRevokeInADomain", true, ErrorCode::aborted,
     [](Waiting& waiting) {
       waiting.world.engine(1).request_revoke(
           Status(ErrorCode::aborted, "rank 1 will not make that call", 1));
     },
     [](Waiting& waiting) { waiting.engine().poll_state(); }},
    {"Deadline", false, ErrorCode::timeout,
     [](Waiting& waiting) {
       waiting.world.schedule().pause(0);
       waiting.world.schedule().at(3 * kTimeout, [] {});
       EXPECT_FALSE(waiting.world.run(2 * kTimeout));
       waiting.world.schedule().resume(0);
     },
     [](Waiting& waiting) { waiting.engine().step(); }},
};

class RevokeWithoutMemory : public ::testing::TestWithParam<Revoke> {};

/// Whether memory was refused in it at all.
bool ends_all(const Revoke& how, int times, int allowed) {
  Waiting waiting(how.domain);
  EXPECT_FALSE(waiting.world.run(kVirtualMillisecond));
  EXPECT_EQ(waiting.world.outcomes(0).size(), 3u);
  how.prepare(waiting);
  bool refused = false;
  {
    const ScarceMemory scarce(1, times, allowed);
    EXPECT_NO_THROW(how.revoke(waiting));
    refused = scarce.refused() > 0;
  }
  const ErrorCode state = waiting.engine().state();
  EXPECT_TRUE(state == how.code || (refused && state == ErrorCode::out_of_memory)) << static_cast<int>(state);
  waiting.world.schedule().wake(0, waiting.world.schedule().now());
  EXPECT_TRUE(waiting.world.run(kVirtualSecond)) << "something waits for ever";
  for (const SimOutcome& outcome : waiting.world.outcomes(0)) EXPECT_FALSE(outcome.status.ok());
  return refused;
}

TEST_P(RevokeWithoutMemory, EndsWhatIsUnderWay) {
  for (const int times : {1, ScarceMemory::kForGood}) {
    int allowed = 0;
    while (!HasFailure() && ends_all(GetParam(), times, allowed)) ++allowed;
    EXPECT_GT(allowed, 0) << "the test did not reach what it is for";
    if (HasFailure()) FAIL() << "without the allocation that comes after " << allowed << " others";
  }
}

INSTANTIATE_TEST_SUITE_P(Sim, RevokeWithoutMemory, ::testing::ValuesIn(kRevokes),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace lockstep::internal
