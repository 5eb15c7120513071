// Several hosts on one machine: what carries what, and how failures on one host are told on the others.
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/make_transport.hpp"
#include "tests/engine/process_group.hpp"
#include "tests/support/thrown_by.hpp"
#include "tests/transports/static_session.hpp"
#include "transports/tcp/switchboard.hpp"

namespace lockstep {
namespace {

using internal::testing::run_forked;
using internal::testing::Shared;
using internal::testing::start_forked;
using internal::testing::wait_for;
using testing::MeetingPlace;
using testing::thrown_by;

const std::vector<int> kHosts{0, 0, 1, 2, 2, 2};  // By rank.

Communicator join_on_host(const MeetingPlace& place, int rank, const char* transports = "auto") {
  setenv("LOCKSTEP_HOST_ID", std::to_string(kHosts[static_cast<std::size_t>(rank)]).c_str(), 1);
  setenv("LOCKSTEP_IFNAME", "=lo", 1);
  setenv("LOCKSTEP_TCP_CONGESTION", "reno", 1);  // As ranks of one host do: bbr paces loopback down.
  return place.join(rank, static_cast<int>(kHosts.size()), transports);
}

/// A store that answers late: after `delay`.
class LateStore final : public internal::Store {
 public:
  LateStore(const std::string& name, std::chrono::milliseconds delay)
      : store_(internal::open_memory_store(name)), delay_(delay) {}
  internal::Status set(std::span<const Entry> entries) override { return store_->set(entries); }
  internal::Result<std::vector<std::string>> get(std::span<const std::string> keys,
                                                 std::chrono::milliseconds timeout) override {
    internal::sleep_for(delay_);
    return store_->get(keys, timeout);
  }
  internal::Result<std::vector<bool>> wait(std::span<const std::string> keys,
                                           std::chrono::milliseconds timeout) override {
    return store_->wait(keys, timeout);
  }
  internal::Result<std::int64_t> add(std::string_view key, std::int64_t delta) override {
    return store_->add(key, delta);
  }

 private:
  const std::unique_ptr<internal::Store> store_;
  const std::chrono::milliseconds delay_;
};

// Of the waits for other ranks, the first takes all the time that there is for them.
TEST(Hosts, AllThatAStartWaitsForHasOneDeadline) {
  run_forked(1, [](int) {
    constexpr std::chrono::milliseconds kTimeout{100};
    internal::World world;
    world.session = std::make_unique<internal::testing::StaticSession>(
        0, 2, std::make_unique<LateStore>("late", kTimeout));
    ASSERT_TRUE(world.session->store().set_one("rdma/1", "").ok());
    internal::EngineGroup group;
    group.members = world.session->members();
    group.members[1].host_id = "elsewhere";
    const auto made = internal::make_transport(world, group, {0, 1}, kTimeout);
    EXPECT_EQ(made.status().code(), ErrorCode::timeout);
    EXPECT_NE(made.status().message().find("no time was left"), std::string::npos) << made.status().message();
  });
}

// Two users or containers of one machine count as two hosts, and whoever asks for memory there knows of one.
TEST(Hosts, WhoAsksForMemoryBetweenThemIsToldWhatParts) {
  run_forked(1, [](int) {
    internal::World world;
    world.transports = "shm";
    internal::EngineGroup group;
    group.members.resize(2);
    group.members[1].host_id = "elsewhere";
    EXPECT_EQ(
        internal::make_transport(world, group, {0, 1}, std::chrono::milliseconds(0)).status().message(),
        "transport shm was asked for, but the ranks cannot share memory: they are on several hosts, or of "
        "several containers or users; use auto or tcp");
  });
}

TEST(Hosts, MemoryInsideAndTcpBetween) {
  const MeetingPlace place;
  run_forked(6, [&](int rank) {
    Communicator comm = join_on_host(place, rank);
    const bool alone = rank == 2;
    const std::string text = comm.describe();
    EXPECT_EQ(text.find("shm+tcp") == std::string::npos, alone) << text;
    comm.finalize();
  });
}

TEST(Hosts, PointToPointAndSplitsReachEverybody) {
  const MeetingPlace place;
  run_forked(6, [&](int rank) {
    Communicator comm = join_on_host(place, rank);
    std::vector<int> sent(6, rank), got(6, -1);
    std::vector<Work> works;
    for (int peer = 0; peer < 6; ++peer) {
      const auto at = static_cast<std::size_t>(peer);
      if (peer == rank) continue;
      works.push_back(comm.send_async(&sent[at], 1, DataType::i32, peer, 7));
      works.push_back(comm.recv_async(&got[at], 1, DataType::i32, peer, 7));
    }
    for (Work& work : works) work.wait();
    got[static_cast<std::size_t>(rank)] = rank;
    std::vector<int> expected(6);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(got, expected);
    auto half = comm.split(rank % 2, rank);  // {0, 2, 4} on three hosts, {1, 3, 5} on two.
    ASSERT_TRUE(half);
    int sum = rank;
    half->all_reduce(&sum, &sum, 1, DataType::i32, ReduceOp::sum);
    EXPECT_EQ(sum, rank % 2 == 0 ? 6 : 9);
    half->finalize();
    comm.finalize();
  });
}

TEST(Hosts, AllRanksMeasureTheSameNetworkAndSplitsInheritIt) {
  const MeetingPlace place;
  run_forked(6, [&](int rank) {
    Communicator comm = join_on_host(place, rank);
    const auto network_of = [](Communicator& one) { return one.core().engine().choices().ground().network; };
    const internal::Network own = network_of(comm);
    EXPECT_TRUE(own.known());
    const std::array<double, 4> figures{own.latency, own.byte, own.busy_latency, own.busy_byte};
    std::array<double, 4> most = figures;
    comm.all_reduce(most.data(), most.data(), most.size(), DataType::f64, ReduceOp::max);
    EXPECT_EQ(most, figures);
    comm.all_reduce(figures.data(), most.data(), most.size(), DataType::f64, ReduceOp::min);
    EXPECT_EQ(most, figures);
    auto half = comm.split(rank % 2, rank);
    EXPECT_EQ(network_of(*half), own);
    auto host = comm.split(kHosts[static_cast<std::size_t>(rank)], rank);
    EXPECT_FALSE(network_of(*host).known()) << "one host has no network";
    comm.finalize();
  });
}

TEST(Hosts, BitsAreEqualOnAllRanks) {
  constexpr std::size_t kCount = 300'007;
  const MeetingPlace place;
  Shared<std::atomic<std::uint64_t>> first;
  run_forked(6, [&](int rank) {
    Communicator comm = join_on_host(place, rank);
    std::vector<float> data(kCount);
    for (std::size_t i = 0; i < kCount; ++i) {
      data[i] =
          1.0f / static_cast<float>((i * 7919 + static_cast<std::size_t>(rank) * 104'729) % 100'003 + 1);
    }
    comm.all_reduce(data.data(), data.data(), kCount, DataType::f32, ReduceOp::avg);
    std::uint64_t hash = 14695981039346656037u;
    for (const float value : data) hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 1099511628211u;
    std::uint64_t none = 0;
    const bool is_first = first->compare_exchange_strong(none, hash);
    EXPECT_TRUE(is_first || hash == none);
    comm.finalize();
  });
}

/// Rank `victim` is killed in the middle of all_reduces.
void survive_a_kill(int victim) {
  const MeetingPlace place;
  Shared<std::atomic<int>> running, named;
  auto children = start_forked(6, [&](int rank) {
    Communicator comm = join_on_host(place, rank);
    std::vector<float> data(1 << 18);
    try {
      while (true) {
        comm.all_reduce(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::sum);
        running->fetch_add(1);
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
      EXPECT_EQ(error.culprit(), victim) << error.what();
      named->fetch_add(1);
    }
  });
  internal::testing::wait_until([&] { return running->load() > 60; });
  kill(children[static_cast<std::size_t>(victim)], SIGKILL);
  for (int rank = 0; rank < 6; ++rank) {
    EXPECT_EQ(wait_for(children[static_cast<std::size_t>(rank)]), rank == victim ? SIGKILL : 0);
  }
  EXPECT_EQ(named->load(), 5);
}

TEST(Hosts, AKilledRankIsNamedOnAllHosts) {
  survive_a_kill(4);  // One of three on its host.
  survive_a_kill(2);  // A host of its own.
}

TEST(Hosts, MismatchesNameBothSidesByTheirRanks) {
  const MeetingPlace place;
  run_forked(6, [&](int rank) {
    Communicator comm = join_on_host(place, rank);
    std::vector<float> data(1000, 1.0f);
    const Error error = thrown_by([&] {
      comm.all_reduce(data.data(), data.data(), rank == 5 ? 999 : 1000, DataType::f32, ReduceOp::sum);
      comm.barrier();  // A rank that could return before the difference was found hears of it here.
    });
    const std::string text = error.what();
    EXPECT_EQ(error.code(), ErrorCode::mismatch) << text;
    EXPECT_NE(text.find("rank 5"), std::string::npos) << text;
  });
}

TEST(Hosts, AnAbortEndsAllHosts) {
  const MeetingPlace place;
  run_forked(6, [&](int rank) {
    Communicator comm = join_on_host(place, rank);
    comm.barrier();  // From here on those that hear of it first are connected.
    if (rank == 3) return comm.abort("enough");
    const Error error = thrown_by([&] { comm.barrier(); });
    EXPECT_EQ(error.culprit(), 3) << error.what();
    EXPECT_NE(std::string(error.what()).find("enough"), std::string::npos) << error.what();
  });
}

}  // namespace
}  // namespace lockstep
