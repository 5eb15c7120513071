// Registered memory between real processes. This process itself never uses the library: its children do.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <thread>

#include "lib/memory/descriptor_service.hpp"
#include "lib/memory/mapping.hpp"
#include "lib/memory/segment.hpp"
#include "lib/memory/segment_table.hpp"
#include "lockstep/error.hpp"
#include "lockstep/memory.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/no_descriptors_left.hpp"

namespace lockstep::internal {
namespace {

using testing::Board;
using testing::run_forked;
using testing::Shared;

constexpr std::size_t kBytes = 1 << 20;

TEST(ForkedMemory, EachProcessWritesIntoTheOthersBlock) {
  struct Plan {
    Board board;
    SegmentRef ref[2];
  };
  Shared<Plan> plan;
  run_forked(2, [&](int rank) {
    auto* mine = static_cast<std::byte*>(lockstep::allocate(kBytes));
    plan->ref[rank] = *find_segment(mine, kBytes);
    plan->board.post(rank, *descriptor_service_name());
    const std::string service = plan->board.read(1 - rank);
    const SegmentRef& ref = plan->ref[1 - rank];
    EXPECT_NE(ref.owner, process_token());
    auto fds = fetch_descriptors(service, segment_key(ref.segment), IfAbsent::fail, 5000);
    ASSERT_TRUE(fds.ok()) << fds.status().message();
    auto theirs = Mapping::map(fds->front(), kBytes);
    ASSERT_TRUE(theirs.ok()) << theirs.status().message();
    std::memset(theirs->data(), 10 + rank, kBytes);
    plan->board.meet(2);
    for (std::size_t i = 0; i < kBytes; i += 1000) ASSERT_EQ(mine[i], static_cast<std::byte>(10 + 1 - rank));
    plan->board.meet(2);
    lockstep::free(mine);
  });
}

// It has a copy of the table, in the middle of a change for ever.
TEST(ForkedMemory, AChildForkedWithinAChangeMayAskForASegment) {
  run_forked(1, [](int) {
    static_cast<void>(process_token());  // What makes this process one that uses the library.
    lockstep::free(lockstep::allocate(1));
    SegmentTable table;
    std::atomic<bool> stop{false};
    std::thread writer([&] {
      for (std::uintptr_t at = 64 << 12; !stop.load(); at = at % (1 << 24) + (1 << 12)) {
        table.insert({at, at + 1, 1});
        table.erase(at);
      }
    });
    for (int turn = 0; turn < 200; ++turn) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::alarm(10);
        static_cast<void>(table.find(1, 1));
        _exit(0);
      }
      if (testing::wait_for(child) != 0) {
        ADD_FAILURE() << "child " << turn << " hangs";
        break;
      }
    }
    stop.store(true);
    writer.join();
  });
}

TEST(ForkedMemory, AFetchFromAKilledProcessEndsAtOnce) {
  Shared<Board> board;
  const auto children = testing::start_forked(2, [&](int rank) {
    if (rank == 0) {
      board->post(0, *descriptor_service_name());
      board->read(1);
      ::raise(SIGKILL);
    }
    const std::string service = board->read(0);
    board->post(1, "kill yourself while I wait");
    const Status status = fetch_descriptors(service, "never offered", IfAbsent::wait, 50'000).status();
    EXPECT_EQ(status.code(), ErrorCode::peer_lost) << status.message();
  });
  EXPECT_EQ(WTERMSIG(testing::wait_for(children[0])), SIGKILL);
  EXPECT_EQ(testing::wait_for(children[1]), 0);
}

// The thread that serves needs two descriptors beside the socket's own.
TEST(ForkedMemory, AServiceWhoseThreadCouldNotStartHasNoNameYet) {
  if (!lockstep::testing::kDescriptorsCanRunOut) GTEST_SKIP();
  run_forked(1, [](int) {
    {
      lockstep::testing::NoDescriptorsLeft none;
      none.give_back_one();
      none.give_back_one();
      EXPECT_THROW((void)descriptor_service_name(), Error);
    }
    const std::string service = *descriptor_service_name();
    const Status status = fetch_descriptors(service, "never offered", IfAbsent::fail, 10'000).status();
    EXPECT_EQ(status.code(), ErrorCode::internal) << "nobody serves: " << status.message();
  });
}

TEST(ForkedMemory, AChildForkedLaterIsRefusedByName) {
  run_forked(1, [](int) {
    void* before = lockstep::allocate(1);
    const auto grandchildren = testing::start_forked(1, [&](int) {
      lockstep::free(before);  // Does nothing: the parent's memory is not ours to free.
      EXPECT_THROW((void)lockstep::allocate(1), Error);
    });
    EXPECT_EQ(testing::wait_for(grandchildren[0]), 0);
    EXPECT_TRUE(is_registered(before, 1));
    lockstep::free(before);
  });
}

TEST(ForkedMemory, ProcessesForkedAfterTheFirstUseHaveTheirOwnToken) {
  Shared<std::array<std::atomic<std::uint64_t>, 2>> tokens;
  const std::uint64_t mine = process_token();
  run_forked(2, [&](int rank) { (*tokens)[rank].store(process_token()); });
  EXPECT_NE((*tokens)[0].load(), (*tokens)[1].load());
  EXPECT_NE((*tokens)[0].load(), mine);
  EXPECT_EQ(process_token(), mine);
}

}  // namespace
}  // namespace lockstep::internal
