// The shared-memory transport among real processes. This process itself never uses the library: its children
// do.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "lockstep/memory.hpp"
#include "tests/support/little_room.hpp"
#include "tests/transports/link_traffic.hpp"
#include "tests/transports/shm_support.hpp"
#include "transports/doorbell.hpp"
#include "transports/shm/limits.hpp"
#include "transports/shm/shm_layout.hpp"

namespace lockstep::internal {
namespace {

using lockstep::testing::kRoomCanRunOut;
using lockstep::testing::leave_room_for;
using testing::Board;
using testing::exchange_members;
using testing::join;
using testing::link_of;
using testing::resolve;
using testing::run_forked;
using testing::Shared;
using testing::Traffic;

std::vector<std::size_t> mixed_sizes(std::size_t count) {
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < count; ++i) sizes.push_back(i * 7919 % (i % 10 == 0 ? 3 * kRingBytes : 600));
  return sizes;
}

TEST(ShmForked, ThousandsOfMessagesBetweenThreeProcesses) {
  Shared<Board> board;
  run_forked(3, [&](int rank) {
    const auto transport = join(7, rank, exchange_members(*board, rank, 3));
    ASSERT_NE(transport, nullptr);
    std::vector<Traffic> traffic;
    for (int peer = 0; peer < 3; ++peer) {
      if (peer != rank) traffic.emplace_back(link_of(*transport, peer), mixed_sizes(3000), mixed_sizes(3000));
    }
    testing::run_all(traffic);
  });
}

struct Offers {
  Board board;
  SegmentRef ref[2];
};

TEST(ShmForked, RegisteredMemoryIsReachedBothWaysUntilItIsMadePrivate) {
  Shared<Offers> offers;
  run_forked(2, [&](int rank) {
    const int peer = 1 - rank;
    const auto transport = join(7, rank, exchange_members(offers->board, rank, 2));
    ASSERT_NE(transport, nullptr);
    Domain& domain = *transport->domain();
    constexpr std::size_t kBytes = 300'000;
    auto* mine = static_cast<std::byte*>(lockstep::allocate(kBytes));
    std::memset(mine, 1 + rank, kBytes);
    offers->ref[rank] = *find_segment(mine + 100, 1000);
    offers->board.meet(2);

    const auto theirs = resolve(domain, peer, offers->ref[peer], 1000);
    ASSERT_TRUE(theirs.ok()) << theirs.status().message();
    EXPECT_EQ(theirs.value()[0], static_cast<std::byte>(1 + peer));
    EXPECT_EQ(domain.resolve(peer, offers->ref[peer], 1000).value(), theirs.value());
    EXPECT_FALSE(domain.resolve(peer, offers->ref[peer], 2 * kBytes).ok());  // Beyond the end.
    SegmentRef beyond = offers->ref[peer];
    beyond.offset = 2 * kBytes;
    EXPECT_FALSE(domain.resolve(peer, beyond, 1).ok());
    theirs.value()[0] = std::byte{77};
    offers->board.meet(2);
    EXPECT_EQ(mine[100], std::byte{77});

    ASSERT_TRUE(make_private(mine + 100, 1000).ok());
    offers->board.meet(2);
    theirs.value()[0] = std::byte{66};        // Too late.
    theirs.value()[100'000] = std::byte{55};  // Where a call of another group is under way.
    offers->board.meet(2);
    EXPECT_EQ(mine[100], std::byte{77});
    EXPECT_EQ(mine[100'100], std::byte{55});
    EXPECT_FALSE(domain.resolve(peer, direct_ref(mine), 8).ok());
  });
}

TEST(ShmForked, ManySegmentsOfAPeerDoNotPileUp) {
  Shared<Offers> offers;
  run_forked(2, [&](int rank) {
    const auto transport = join(7, rank, exchange_members(offers->board, rank, 2));
    ASSERT_NE(transport, nullptr);
    for (std::size_t round = 0; round < kMaxMappedSegments + 50; ++round) {
      void* block = rank == 0 ? lockstep::allocate(1) : nullptr;
      if (rank == 0) offers->ref[0] = *find_segment(block, 1);
      offers->board.meet(2);
      if (rank == 1) {
        ASSERT_TRUE(resolve(*transport->domain(), 0, offers->ref[0], 1).ok());
      }
      offers->board.meet(2);
      // The block is not freed: each round has a segment of its own.
    }
    if (rank == 0) return;
    std::ifstream maps("/proc/self/maps");
    std::size_t mapped = 0;
    for (std::string line; std::getline(maps, line);)
      mapped += line.find("/memfd:lockstep-memory") != std::string::npos;
    EXPECT_LE(mapped, kMaxMappedSegments);
    EXPECT_GE(mapped, kMaxMappedSegments / 2);
  });
}

TEST(ShmForked, WhoHasEndedIsNamedWhereItsMemoryIsAskedFor) {
  Shared<Offers> offers;
  Shared<std::atomic<bool>> ended;
  const auto children = testing::start_forked(2, [&](int rank) {
    const auto transport = join(7, rank, exchange_members(offers->board, rank, 2));
    ASSERT_NE(transport, nullptr);
    offers->ref[rank] = *find_segment(lockstep::allocate(1), 1);
    offers->board.meet(2);
    if (rank == 1) return;
    testing::wait_until([&] { return ended->load(); });
    const Status why = transport->domain()->resolve(1, offers->ref[1], 1).status();
    EXPECT_EQ(why.code(), ErrorCode::peer_lost) << why.message();
    EXPECT_EQ(why.culprit(), 1);
    EXPECT_NE(why.message().find("memory of rank 1 ("), std::string::npos) << why.message();
  });
  EXPECT_EQ(testing::wait_for(children[1]), 0);
  ended->store(true);
  EXPECT_EQ(testing::wait_for(children[0]), 0);
}

// A member that is stopped hands nothing over. Who sleeps meanwhile is woken by the answer.
TEST(ShmForked, ALateAnswerIsThereToBeWatched) {
  Shared<Offers> offers;
  Shared<SegmentRef> other;
  Shared<std::atomic<bool>> stopped, over;
  const auto children = testing::start_forked(2, [&](int rank) {
    const auto transport = join(7, rank, exchange_members(offers->board, rank, 2));
    ASSERT_NE(transport, nullptr);
    auto* const one = static_cast<std::byte*>(lockstep::allocate(1));
    auto* const two = static_cast<std::byte*>(lockstep::allocate(1));
    *one = std::byte{1}, *two = std::byte{2};
    offers->ref[rank] = *find_segment(one, 1);
    if (rank == 1) *other = *find_segment(two, 1);
    offers->board.meet(2);
    if (rank == 1) {
      ::raise(SIGSTOP);
      return testing::wait_until([&] { return over->load(); });
    }
    testing::wait_until([&] { return stopped->load(); });
    Domain& domain = *transport->domain();
    const auto watched = [&] {
      std::vector<pollfd> entries;
      transport->append_poll_entries(entries);
      return entries;
    };
    EXPECT_TRUE(watched().empty());
    declare_asleep(domain.control(0).doorbell, true);
    EXPECT_EQ(domain.resolve(1, offers->ref[1], 1).status().code(), ErrorCode::timeout);
    EXPECT_EQ(domain.control(0).doorbell.asleep.load(), 0u) << "it would not watch for the answer";
    auto late = watched();
    EXPECT_EQ(late.size(), 1u);
    domain.control(0).revoked.store(2);
    EXPECT_TRUE(watched().empty()) << "after a revoke nobody asks again";
    domain.control(0).revoked.store(0);
    EXPECT_EQ(::poll(late.data(), late.size(), 0), 0);
    stopped->store(false);
    if (!late.empty()) {
      EXPECT_EQ(::poll(late.data(), late.size(), -1), 1);
    }
    EXPECT_EQ(**resolve(domain, 1, *other, 1), std::byte{2}) << "it is the answer to another question";
    EXPECT_EQ(**resolve(domain, 1, offers->ref[1], 1), std::byte{1});
    EXPECT_TRUE(watched().empty());
    over->store(true);
  });
  ASSERT_EQ(waitpid(children[1], nullptr, WUNTRACED), children[1]);
  stopped->store(true);
  testing::wait_until([&] { return !stopped->load(); });
  ::kill(children[1], SIGCONT);
  for (const pid_t child : children) EXPECT_EQ(testing::wait_for(child), 0);
}

TEST(ShmForked, WhereThereIsNoRoomIdleSegmentsMakeIt) {
  if (!kRoomCanRunOut) GTEST_SKIP();
  Shared<Offers> offers;
  constexpr std::size_t kBytes = 4 << 20;
  run_forked(2, [&](int rank) {
    const auto transport = join(7, rank, exchange_members(offers->board, rank, 2));
    ASSERT_NE(transport, nullptr);
    for (int round = 0; round < 20; ++round) {
      void* const block = rank == 0 ? lockstep::allocate(kBytes) : nullptr;
      if (rank == 0) offers->ref[0] = *find_segment(block, 1);
      offers->board.meet(2);
      if (rank == 1) {
        if (round == 0) leave_room_for(2 * kBytes + kBytes / 2);
        const auto place = resolve(*transport->domain(), 0, offers->ref[0], kBytes);
        ASSERT_TRUE(place.ok()) << round << ": " << place.status().message();
        EXPECT_EQ(place.value()[kBytes - 1], std::byte{0});
      }
      offers->board.meet(2);  // The block is not freed: the next has a segment of its own.
    }
  });
}

TEST(ShmForked, WhatTheOperationUnderWayUsesMakesNoRoom) {
  if (!kRoomCanRunOut) GTEST_SKIP();
  struct Blocks {
    Board board;
    SegmentRef ref[3];
  };
  Shared<Blocks> blocks;
  constexpr std::size_t kBytes = 4 << 20;
  run_forked(2, [&](int rank) {
    const auto transport = join(7, rank, exchange_members(blocks->board, rank, 2));
    ASSERT_NE(transport, nullptr);
    for (SegmentRef& ref : blocks->ref) {
      if (rank == 0) ref = *find_segment(lockstep::allocate(kBytes), 1);
    }
    blocks->board.meet(2);
    if (rank == 0) return blocks->board.meet(2);
    Domain& domain = *transport->domain();
    const auto place = [&](int block) {
      for (;;) {
        auto found = domain.resolve(0, blocks->ref[block], kBytes);
        if (found.status().code() != ErrorCode::timeout) return found;
      }
    };
    leave_room_for(2 * kBytes + kBytes / 2);
    domain.begin_resolving();
    const auto first = place(0), second = place(1);
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_EQ(place(2).status().code(), ErrorCode::out_of_memory);
    first.value()[0] = second.value()[0] = std::byte{1};
    domain.begin_resolving();
    ASSERT_TRUE(place(0).ok());
    EXPECT_TRUE(place(2).ok()) << "only the second made room";
    EXPECT_EQ(first.value()[0], std::byte{1});
    blocks->board.meet(2);
  });
}

TEST(ShmForked, TheSurvivorOfAKillKeepsItsSensesAndItsMemory) {
  Shared<Board> board;
  const auto children = testing::start_forked(2, [&](int rank) {
    const auto transport = join(7, rank, exchange_members(*board, rank, 2));
    ASSERT_NE(transport, nullptr);
    Link& link = link_of(*transport, 1 - rank);
    if (rank == 0) {
      Traffic traffic(link, {100 * kRingBytes}, {});
      while (traffic.step() || link.bytes_sent() < 10 * kRingBytes) {
      }
      ::raise(SIGKILL);  // In the middle of a message.
    }
    Traffic traffic(link, {}, {100 * kRingBytes});
    // What came before the death is good; then nothing more comes, and nothing here hangs or crashes.
    const auto gone = [&] {
      return fetch_descriptors(board->read(0).substr(board->read(0).rfind(' ') + 1), "any", IfAbsent::fail,
                               1000)
                 .status()
                 .code() == ErrorCode::peer_lost;
    };
    while (traffic.step() || !gone()) {
    }
    traffic.step();
    EXPECT_TRUE(traffic.status().ok()) << traffic.status().message();
    EXPECT_GE(sizeof(FrameHeader) + traffic.payload_received(), 10 * kRingBytes);
    std::memset(transport->domain()->staging(0), 1, kStagingBytes);
    transport->domain()->ring(0);
    transport->close();
  });
  EXPECT_EQ(WTERMSIG(testing::wait_for(children[0])), SIGKILL);
  EXPECT_EQ(testing::wait_for(children[1]), 0);
}

// Rank 1 is killed or stopped while the others set up; they name it.
void lose_rank_1_in_setup(int signal, std::chrono::milliseconds timeout, ErrorCode expected) {
  Shared<Board> board;
  const auto children = testing::start_forked(3, [&](int rank) {
    const std::vector<Member> members = exchange_members(*board, rank, 3);
    if (rank == 1) ::raise(signal);
    const auto transport = make_shm_transport(7, rank, members, timeout, real_env());
    board->meet(2);  // Who gives up first must not be taken for the cause.
    ASSERT_FALSE(transport.ok());
    EXPECT_EQ(transport.status().code(), expected) << transport.status().message();
    EXPECT_EQ(transport.status().culprit(), 1);
    EXPECT_NE(transport.status().message().find(who_is(1, members[1])), std::string::npos)
        << transport.status().message();
  });
  EXPECT_EQ(testing::wait_for(children[0]), 0);
  EXPECT_EQ(testing::wait_for(children[2]), 0);
  ::kill(children[1], SIGKILL);
  EXPECT_TRUE(WIFSIGNALED(testing::wait_for(children[1])));
}

TEST(ShmForked, ARankKilledInSetUpIsNamedAtOnce) {
  lose_rank_1_in_setup(SIGKILL, testing::kPatience, ErrorCode::peer_lost);
}

// Rank 1 has room for its own part of the group's memory only.
TEST(ShmForked, ARankThatLacksRoomInSetUpBlamesNobodyElse) {
  if (!kRoomCanRunOut) GTEST_SKIP();
  Shared<Board> board;
  run_forked(2, [&](int rank) {
    const std::vector<Member> members = exchange_members(*board, rank, 2);
    if (rank == 1) leave_room_for(ShmLayout(2).total_bytes() * 3 / 2);
    const auto transport = make_shm_transport(7, rank, members, testing::kPatience, real_env());
    ASSERT_FALSE(transport.ok());
    const Status& status = transport.status();  // Of rank 0: the other has gone.
    EXPECT_EQ(status.code(), rank == 1 ? ErrorCode::out_of_memory : ErrorCode::peer_lost) << status.message();
    EXPECT_EQ(status.culprit(), rank == 1 ? -1 : 1) << status.message();
    EXPECT_EQ(status.message().find("attaching to the memory of rank 0") != std::string::npos, rank == 1)
        << status.message();
  });
}

TEST(ShmForked, ARankStoppedInSetUpIsNamedAtTheDeadline) {
  lose_rank_1_in_setup(SIGSTOP, std::chrono::seconds(3), ErrorCode::timeout);
}

TEST(ShmForked, ProcessesWithTwoRanksEachFormOneGroup) {
  Shared<Board> board;
  run_forked(2, [&](int process) {
    std::vector<std::thread> threads;
    std::vector<Member> members;
    for (const int rank : {2 * process, 2 * process + 1}) {
      threads.emplace_back([&, rank] {
        const auto transport = join(7, rank, exchange_members(*board, rank, 4));
        ASSERT_NE(transport, nullptr);
        std::vector<Traffic> traffic;
        for (int peer = 0; peer < 4; ++peer) {
          if (peer != rank) traffic.emplace_back(link_of(*transport, peer), mixed_sizes(50), mixed_sizes(50));
        }
        testing::run_all(traffic);
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

// Of the threads one asks for the other process's memory, and asks again.
TEST(ShmForked, ThreadsWaitTogetherForAProcessThatIsLate) {
  Shared<Board> board;
  run_forked(2, [&](int process) {
    const std::vector<int> own = process == 0 ? std::vector{0, 1} : std::vector{2};
    std::vector<std::thread> threads;
    for (const int rank : own) {
      threads.emplace_back([&, rank] {
        const std::vector<Member> members = exchange_members(*board, rank, 3);
        if (rank == 2) ::poll(nullptr, 0, 3 * kLivenessNanos / 1'000'000);
        EXPECT_NE(join(7, rank, members), nullptr);
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

std::size_t mappings_and_descriptors() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);)
    count += line.find("/memfd:lockstep") != std::string::npos;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

TEST(ShmForked, NothingIsLeftOfGroupsThatEnded) {
  run_forked(1, [&](int) {
    testing::run_threads(2, [](int, Transport&) {});
    const std::size_t before = mappings_and_descriptors();
    for (int i = 0; i < 20; ++i) testing::run_threads(2, [](int, Transport&) {});
    EXPECT_EQ(mappings_and_descriptors(), before);
  });
}

// What one process offers another is for the set-up alone. (A connection or two may be about to end.)
TEST(ShmForked, NothingIsLeftOfGroupsOfTwoProcessesThatEnded) {
  Shared<Board> board;
  run_forked(2, [&](int rank) {
    const auto members = exchange_members(*board, rank, 2);
    const auto left_after = [&](std::uint64_t groups) {
      static std::uint64_t last_id = 0;
      for (; groups > 0; --groups) EXPECT_NE(join(++last_id, rank, members), nullptr);
      return mappings_and_descriptors();
    };
    const std::size_t before = left_after(1);
    EXPECT_LT(left_after(20), before + 10);
  });
}

}  // namespace
}  // namespace lockstep::internal
