// Transfers between two UCX workers of one process: which of them are puts, and that both kinds arrive.
#include "transports/ucx/ucx_wire.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "lockstep/memory.hpp"
#include "tests/support/eventually.hpp"
#include "tests/transports/link_fixtures.hpp"
#include "transports/ucx/ucx_transport.hpp"
#include "transports/verbs/verbs_transport.hpp"

namespace lockstep::internal {
namespace {

constexpr std::size_t kBytes = 300'001;

/// Two workers that know each other. `puts`: the value of LOCKSTEP_UCX_PUTS; `ways`: of UCX_TLS.
class UcxWires : public ::testing::Test {
 protected:
  void start(const char* puts, bool watched, const char* ways = "tcp,self") {
    ::setenv("UCX_TLS", ways, 1);
    ::setenv("LOCKSTEP_UCX_PUTS", puts, 1);
    for (int rank = 0; rank < 2; ++rank) {
      auto context = open_ucx(2);
      ASSERT_TRUE(context.ok()) << context.status().message();
      auto worker = UcxWorker::make(*context, rank, UCS_MEMORY_TYPE_UNKNOWN);
      ASSERT_TRUE(worker.ok()) << worker.status().message();
      workers_[rank] = std::move(*worker);
    }
    for (const auto& worker : workers_) {
      for (const auto& peer : workers_) worker->add_peer(*peer->identity(), watched);
    }
    for (int rank = 0; rank < 2; ++rank) {
      auto wire = workers_[rank]->wire(1 - rank, Channel::collective);
      ASSERT_TRUE(wire.ok()) << wire.status().message();
      wires_[rank] = std::move(*wire);
    }
  }
  void SetUp() override { remember("UCX_TLS"), remember("LOCKSTEP_UCX_PUTS"); }
  void TearDown() override {
    for (const auto& [name, value] : before_) {
      value ? ::setenv(name, value->c_str(), 1) : ::unsetenv(name);
    }
  }

  /// Rank 1 opens `memory`, rank 0 fills it. Whether by a put.
  bool transfer(std::span<std::byte> memory, std::span<const std::byte> payload, bool may_take_back) {
    Landing landing;
    EXPECT_TRUE(wires_[1]->open_landing(memory, may_take_back, landing).ok());
    EXPECT_EQ(landing.bytes, memory.size());
    EXPECT_TRUE(wires_[0]->fill(landing, payload).value());
    const std::uint64_t number = ++transfers_;
    for (std::uint64_t filled = 0, landed = 0; filled < number || landed < number;) {
      workers_[0]->progress(), workers_[1]->progress();
      filled = wires_[0]->filled();
      landed = wires_[1]->landed();
      EXPECT_TRUE(wires_[0]->failure().ok()) << wires_[0]->failure().message();
      EXPECT_TRUE(wires_[1]->failure().ok()) << wires_[1]->failure().message();
      if (::testing::Test::HasFailure()) return false;
    }
    EXPECT_TRUE(std::equal(memory.begin(), memory.end(), payload.begin(), payload.end()));
    return landing.key_bytes > 0;
  }

  std::unique_ptr<UcxWorker> workers_[2];
  std::unique_ptr<Wire> wires_[2];

 private:
  void remember(const char* name) {
    const char* const value = std::getenv(name);
    before_.emplace_back(name, value != nullptr ? std::optional<std::string>(value) : std::nullopt);
  }
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
  std::uint64_t transfers_ = 0;
};

TEST_F(UcxWires, PutsGoToMappedMemoryThatStaysOpenAndMessagesToAllElse) {
  ASSERT_NO_FATAL_FAILURE(start("on", true));
  std::vector<std::byte> plain(kBytes);
  const std::span mapped(static_cast<std::byte*>(lockstep::allocate(kBytes)), kBytes);
  const std::span fabrics = *workers_[1]->bounce_memory(kBytes);
  // Puts and messages take turns, and from mapped memory as well as from plain.
  for (std::uint64_t round = 0; round < 3; ++round) {
    const auto payload = testing::pattern(kBytes, round);
    EXPECT_TRUE(transfer(mapped, payload, false));
    EXPECT_FALSE(transfer(mapped, payload, true)) << "a put cannot be taken back";
    EXPECT_FALSE(transfer(plain, payload, false)) << "nobody tells when it is unmapped";
    EXPECT_TRUE(transfer(fabrics, mapped, false));
  }
  lockstep::free(mapped.data());
}

TEST_F(UcxWires, NobodyPutsWhereUcxCannotEndTheConnection) {
  ASSERT_NO_FATAL_FAILURE(start("on", false));
  EXPECT_FALSE(transfer(*workers_[1]->bounce_memory(kBytes), testing::pattern(kBytes, 1), false));
}

TEST_F(UcxWires, ByItselfNobodyPutsOverTcp) {
  ASSERT_NO_FATAL_FAILURE(start("auto", true));
  EXPECT_FALSE(transfer(*workers_[1]->bounce_memory(kBytes), testing::pattern(kBytes, 1), false));
}

// Over TCP nothing is sent before both have stepped.
TEST_F(UcxWires, ASendIsUnfinishedUntilItIsOnItsWay) {
  ASSERT_NO_FATAL_FAILURE(start("auto", true));
  const std::byte text[3] = {std::byte{1}, std::byte{2}, std::byte{3}};
  EXPECT_FALSE(wires_[0]->unfinished());
  ASSERT_TRUE(wires_[0]->send(text, {}).value());
  EXPECT_TRUE(wires_[0]->unfinished());
  EXPECT_TRUE(lockstep::testing::eventually([&] {
    workers_[0]->progress(), workers_[1]->progress();
    return !wires_[0]->unfinished();
  }));
}

TEST_F(UcxWires, OneThatIsCutIsFinishedAndTakesNothingMore) {
  ASSERT_NO_FATAL_FAILURE(start("auto", true));
  std::vector<std::byte> memory(kBytes);
  ASSERT_TRUE(wires_[0]->send(std::span(memory).first(3), {}).value());
  wires_[0]->cut(Status(ErrorCode::aborted, "enough", 1));
  EXPECT_FALSE(wires_[0]->unfinished());
  Landing landing;
  EXPECT_EQ(wires_[0]->send(std::span(memory).first(3), {}).status().message(), "enough");
  EXPECT_EQ(wires_[0]->open_landing(memory, true, landing).message(), "enough");
}

// As of a rank of a larger world, or another group.
TEST_F(UcxWires, AMessageOfARankThatThereIsNotIsNoCall) {
  ASSERT_NO_FATAL_FAILURE(start("auto", true));
  auto context = open_ucx(2);
  ASSERT_TRUE(context.ok()) << context.status().message();
  auto stranger = UcxWorker::make(*context, 1000, UCS_MEMORY_TYPE_UNKNOWN);
  ASSERT_TRUE(stranger.ok()) << stranger.status().message();
  (*stranger)->add_peer(*workers_[1]->identity(), true);
  auto wire = (*stranger)->wire(0, Channel::collective);
  ASSERT_TRUE(wire.ok()) << wire.status().message();
  ASSERT_TRUE((*wire)->send(std::vector<std::byte>(3), {}).value());
  EXPECT_TRUE(lockstep::testing::eventually([&] {
    (*stranger)->progress(), workers_[1]->progress();
    return !(*wire)->unfinished();
  }));
  for (int i = 0; i < 1000; ++i) {
    workers_[1]->progress();
    ASSERT_FALSE(workers_[1]->caller());
  }
  // Nor does it keep the calls of others from being seen.
  auto call = workers_[0]->wire(1, Channel::point_to_point);
  ASSERT_TRUE(call.ok()) << call.status().message();
  ASSERT_TRUE((*call)->send(std::vector<std::byte>(3), {}).value());
  EXPECT_TRUE(lockstep::testing::eventually([&] {
    workers_[0]->progress(), workers_[1]->progress();
    return workers_[1]->caller() == std::pair(0, Channel::point_to_point);
  }));
  (*call).reset();
  (*wire).reset();
}

// As of a host whose names are not to be seen here.
TEST_F(UcxWires, ALifeSignThatCannotBeSeenSaysNothing) {
  ASSERT_NO_FATAL_FAILURE(start("auto", false));
  auto context = open_ucx(2);
  ASSERT_TRUE(context.ok()) << context.status().message();
  auto far = UcxWorker::make(*context, 0, UCS_MEMORY_TYPE_UNKNOWN);
  ASSERT_TRUE(far.ok()) << far.status().message();
  (*far)->add_peer(*(*far)->identity(), false);
  UcxIdentity peer = *workers_[1]->identity();
  peer.life_sign += "-elsewhere";
  (*far)->add_peer(std::move(peer), false);
  auto wire = (*far)->wire(1, Channel::collective);
  ASSERT_TRUE(wire.ok()) << wire.status().message();
  for (int look = 0; look < 10; ++look) (*far)->look_for_leavers();
  EXPECT_TRUE((*wire)->failure().ok()) << (*wire)->failure().message();
}

// tools/test --rdma brings a device.
TEST_F(UcxWires, ByItselfADevicePuts) {
  if (!open_verbs(0).ok()) GTEST_SKIP() << "no RDMA device";
  ASSERT_NO_FATAL_FAILURE(start("auto", true, "rc,self"));
  const std::span mapped(static_cast<std::byte*>(lockstep::allocate(kBytes)), kBytes);
  for (std::uint64_t round = 0; round < 3; ++round) {
    EXPECT_TRUE(transfer(mapped, testing::pattern(kBytes, round), false));
  }
  lockstep::free(mapped.data());
}

}  // namespace
}  // namespace lockstep::internal
