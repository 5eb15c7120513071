// Ranks that stop in the middle of a call while the others give up: what they still do to memory when they go
// on, and what others that use it see.

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "collectives/communicator_core.hpp"
#include "lib/memory/segment.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/engine/process_group.hpp"
#include "tests/support/no_room.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using internal::testing::run_forked;
using internal::testing::Shared;
using internal::testing::start_forked;
using internal::testing::wait_for;
using internal::testing::wait_until;
using std::chrono::milliseconds;
using testing::error_of;
using testing::MeetingPlace;
using testing::NoRoom;
using testing::thrown_by;

constexpr std::size_t kPage = 4096 / sizeof(float);
/// By then the other is in its operator, also on a busy machine.
constexpr milliseconds kGivesUpAfter(2'000);

void add(const void* in, void* inout, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) static_cast<float*>(inout)[i] += static_cast<const float*>(in)[i];
}

/// A registered all_reduce whose operator stops its process once `stops`.
CallOptions that_stops(std::atomic<bool>* stops, milliseconds timeout) {
  CallOptions options;
  options.algorithm = "registered/fused";
  options.timeout = timeout;
  options.user_op.context = stops;
  options.user_op.combine = [](const void* in, void* inout, std::size_t count, void* context) {
    auto* const stop = static_cast<std::atomic<bool>*>(context);
    if (stop != nullptr && stop->exchange(false)) raise(SIGSTOP);
    add(in, inout, count);
  };
  return options;
}

void await_stop(pid_t child) {
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status)) << "it never came to stop";
}

struct StopBoard {
  std::atomic<bool> stopped{false}, given_up{false}, resumed{false};
};

/// Lets the last of `children`, which stops, go on once rank 0 has given up on it, and waits for all.
void go_on_after(StopBoard& board, const std::vector<pid_t>& children) {
  await_stop(children.back());
  board.stopped.store(true);
  wait_until([&] { return board.given_up.load(); });
  kill(children.back(), SIGCONT);
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), 0);
}

/// What rank 0 gives up for: its deadline, or the news that rank 1 is lost, as where only the connection was
/// by which it would be missed.
enum class GivesUp { in_time, on_loss };

/// Rank 1 has read half of the input and writes a result: neither is one, and the caller's memory stays as it
/// is.
void expect_memory_left_alone(GivesUp why) {
  MeetingPlace place;
  Shared<StopBoard> board;
  constexpr std::size_t kCount = 4 * kPage;
  const ErrorCode expected = why == GivesUp::in_time ? ErrorCode::timeout : ErrorCode::peer_lost;
  const milliseconds patience = why == GivesUp::in_time ? kGivesUpAfter : milliseconds(60'000);
  const auto children = start_forked(2, [&](int rank) {
    Communicator comm = place.join(rank, 2, "shm");
    auto* const in = static_cast<float*>(allocate(2 * kCount * sizeof(float)));
    float* const out = in + kCount - 8;  // In one block, and sharing a page.
    std::fill_n(in, 2 * kCount, 1.0f);
    comm.barrier();
    std::atomic<bool> stops = rank == 1;
    const auto error = error_of([&] {
      Work work = comm.all_reduce_async(in, out, kCount - 8, DataType::f32, ReduceOp::user,
                                        that_stops(&stops, rank == 0 ? patience : milliseconds(60'000)));
      if (rank == 0 && why == GivesUp::on_loss) {
        wait_until([&] { return board->stopped.load(); });
        comm.core().engine().on_loss(1, "its connection has ended");
      }
      work.wait();
    });
    EXPECT_EQ(error.first, expected) << error.second;
    if (rank == 1) return board->resumed.store(true);
    std::fill_n(in, 2 * kCount, 7.0f);
    board->given_up.store(true);
    wait_until([&] { return board->resumed.load(); });
    EXPECT_EQ(std::count(in, in + 2 * kCount, 7.0f), static_cast<std::ptrdiff_t>(2 * kCount));
  });
  go_on_after(*board, children);
}

TEST(Stopped, WhoGoesOnLeavesTheCallersMemoryAloneAndReportsNoSuccess) {
  expect_memory_left_alone(GivesUp::in_time);
}
TEST(Stopped, WhoIsTakenForLostLeavesTheCallersMemoryAloneToo) { expect_memory_left_alone(GivesUp::on_loss); }

// In shared memory calls go the shortest way: what no peer writes to any more stays there.
TEST(Stopped, WhoWasKilledThereTakesNoMemoryFromItsPeers) {
  MeetingPlace place;
  const auto children = start_forked(2, [&](int rank) {
    Communicator comm = place.join(rank, 2, "shm");
    auto* const data = static_cast<float*>(allocate(kPage * sizeof(float)));
    comm.barrier();
    std::atomic<bool> stops = rank == 1;
    const auto error = error_of([&] {
      comm.all_reduce(data, data, kPage, DataType::f32, ReduceOp::user,
                      that_stops(&stops, milliseconds(60'000)));
    });
    EXPECT_EQ(error.first, ErrorCode::peer_lost) << error.second;
    EXPECT_FALSE(internal::is_private(data, kPage * sizeof(float)));
  });
  ASSERT_EQ(waitpid(children[1], nullptr, WUNTRACED), children[1]);
  kill(children[1], SIGKILL);
  EXPECT_EQ(wait_for(children[0]), 0);
  EXPECT_NE(wait_for(children[1]), 0);
}

TEST(Stopped, WhatItMayStillWriteToIsSaidWhereItCannotBePrevented) {
  MeetingPlace place;
  Shared<StopBoard> board;
  const auto children = start_forked(2, [&](int rank) {
    Communicator comm = place.join(rank, 2, "shm");
    auto* const data = static_cast<float*>(allocate(kPage * sizeof(float)));
    comm.barrier();
    std::atomic<bool> stops = rank == 1;
    std::optional<NoRoom> none;
    if (rank == 0) none.emplace();
    const auto error = error_of([&] {
      comm.all_reduce(data, data, kPage, DataType::f32, ReduceOp::user, that_stops(&stops, kGivesUpAfter));
    });
    EXPECT_EQ(error.second.find("may still write to the output") != std::string::npos, rank == 0)
        << error.second;
    if (rank == 0) board->given_up.store(true);
  });
  go_on_after(*board, children);
}

// The first two have a communicator of their own, whose calls go on in the other half of the blocks.
TEST(Stopped, OtherCallsInTheSameBlockStayRight) {
  MeetingPlace place;
  Shared<StopBoard> board;
  constexpr std::size_t kCount = 16 * kPage;
  const auto children = start_forked(3, [&](int rank) {
    Communicator world = place.join(rank, 3, "shm");
    std::optional<Communicator> pair = world.split(rank < 2 ? 0 : -1, rank);
    auto* const block = static_cast<float*>(allocate(2 * kCount * sizeof(float)));
    std::atomic<bool> stops = rank == 2, over = false;
    world.barrier();
    std::thread first([&] {
      const auto error = error_of([&] {
        world.all_reduce(block, block, kCount, DataType::f32, ReduceOp::user,
                         that_stops(&stops, kGivesUpAfter));
      });
      EXPECT_EQ(error.first, ErrorCode::timeout) << error.second;
      over.store(true);
    });
    float* const data = block + kCount;
    float last = rank < 2 ? 0.0f : 1.0f;
    for (float turn = 1; last == 0; ++turn) {
      const bool was_over = over.load();
      std::fill_n(data, kCount, turn * static_cast<float>(rank + 1));
      pair->all_reduce(data, data, kCount, DataType::f32, ReduceOp::sum);
      ASSERT_EQ(std::count(data, data + kCount, 3 * turn), static_cast<std::ptrdiff_t>(kCount));
      last = was_over ? 1.0f : 0.0f;
      pair->all_reduce(&last, &last, 1, DataType::f32, ReduceOp::min);
      if (turn > 1000) turn = 0;
    }
    first.join();
    if (rank == 0) board->given_up.store(true);
  });
  go_on_after(*board, children);
}

/// What rank 0 reduces into, which its operator takes from the peers, as after the failure of another
/// communicator.
struct Taken {
  void* data;
  std::size_t bytes;
  static void combine(const void* in, void* inout, std::size_t count, void* taken) {
    const auto* const self = static_cast<const Taken*>(taken);
    EXPECT_TRUE(self == nullptr || internal::make_private(self->data, self->bytes).ok());
    add(in, inout, count);
  }
};

TEST(Stopped, WhoseMemoryAnotherFailureTookIsNamedOnAllRanks) {
  MeetingPlace place;
  run_forked(2, [&](int rank) {
    Communicator comm = place.join(rank, 2, "shm");
    Taken taken{allocate(kPage * sizeof(float)), kPage * sizeof(float)};
    comm.barrier();
    CallOptions options;
    options.algorithm = "registered/fused";
    options.user_op = {&Taken::combine, rank == 0 ? &taken : nullptr};
    const Error error = thrown_by(
        [&] { comm.all_reduce(taken.data, taken.data, kPage, DataType::f32, ReduceOp::user, options); });
    const std::string text = error.what();
    EXPECT_EQ(error.code(), ErrorCode::aborted) << text;
    EXPECT_EQ(error.culprit(), 0) << text;
    EXPECT_NE(text.find("cause : rank 0 ("), std::string::npos) << text;
    EXPECT_NE(text.find("made memory private"), std::string::npos) << text;
  });
}

// The first two of four are threads of one process, and find each other's blocks without mapping them. With
// the third they have a communicator of their own, whose call was started before and ends afterwards.
TEST(Stopped, ACallThatWasStartedBeforeEndsWellAmongThreads) {
  MeetingPlace place;
  struct Board {
    std::atomic<bool> stopped{false};
    std::atomic<int> gave_up{0};
  };
  Shared<Board> board;
  constexpr std::size_t kCount = 8 * kPage;
  const auto run = [&](int rank) {
    Communicator world = place.join(rank, 4, "shm");
    std::optional<Communicator> three = world.split(rank < 3 ? 0 : -1, rank);
    auto* const block = static_cast<float*>(allocate(2 * kCount * sizeof(float)));
    float* const data = rank < 2 ? block + kCount : static_cast<float*>(allocate(kCount * sizeof(float)));
    std::fill_n(data, kCount, static_cast<float>(rank + 1));
    CallOptions options;
    options.algorithm = "registered/fused";
    Work work;
    const auto start = [&] {
      work = three->all_reduce_async(data, data, kCount, DataType::f32, ReduceOp::sum, options);
    };
    world.barrier();
    if (rank < 2) start();
    std::atomic<bool> stops = rank == 3;
    Work lost = world.all_reduce_async(block, block, kCount, DataType::f32, ReduceOp::user,
                                       that_stops(&stops, milliseconds(60'000)));
    wait_until([&] { return board->stopped.load(); });
    world.abort();
    EXPECT_EQ(error_of([&] { lost.wait(); }).first, ErrorCode::aborted);
    if (rank == 3) return;
    EXPECT_FALSE(is_registered(block, 1)) << "the test did not reach what it is for";
    board->gave_up.fetch_add(1);
    wait_until([&] { return board->gave_up.load() == 3; });
    if (rank == 2) start();
    work.wait();
    EXPECT_EQ(std::count(data, data + kCount, 6.0f), static_cast<std::ptrdiff_t>(kCount));
  };
  const auto children = start_forked(3, [&](int process) {
    if (process > 0) return run(process + 1);
    std::thread second([&] { EXPECT_NO_THROW(run(1)); });
    EXPECT_NO_THROW(run(0));
    second.join();
  });
  await_stop(children.back());
  board->stopped.store(true);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(wait_for(children[i]), 0);
  kill(children.back(), SIGCONT);
  EXPECT_EQ(wait_for(children.back()), 0);
}

// A rank that has not mapped the peer's memory yet asks the peer for it.
TEST(Stopped, WhoWaitsForAPeersMemoryKeepsItsDeadlineAndNamesThePeer) {
  MeetingPlace place;
  Shared<StopBoard> board;
  constexpr std::size_t kCount = 1 << 20;
  const auto children = start_forked(2, [&](int rank) {
    Communicator comm = place.join(rank, 2, "shm");
    auto* const data = static_cast<float*>(allocate(kCount * sizeof(float)));
    comm.barrier();
    CallOptions options;
    options.algorithm = "registered/fused";
    options.timeout = rank == 0 ? kGivesUpAfter : milliseconds(60'000);
    if (rank == 1) {
      Work work = comm.all_reduce_async(data, data, kCount, DataType::f32, ReduceOp::sum, options);
      raise(SIGSTOP);
      EXPECT_EQ(error_of([&] { work.wait(); }).first, ErrorCode::timeout);
      return;
    }
    wait_until([&] { return board->stopped.load(); });
    const auto begun = std::chrono::steady_clock::now();
    const auto error =
        error_of([&] { comm.all_reduce(data, data, kCount, DataType::f32, ReduceOp::sum, options); });
    EXPECT_LT(std::chrono::steady_clock::now() - begun, 5 * kGivesUpAfter);
    EXPECT_EQ(error.first, ErrorCode::timeout) << error.second;
    EXPECT_NE(error.second.find("it waits for rank 1 ("), std::string::npos) << error.second;
    EXPECT_NE(error.second.find("pid "), std::string::npos) << error.second;
    board->given_up.store(true);
  });
  go_on_after(*board, children);
}

/// Ranks that are threads cannot be kept from memory that they write to already.
void outlast_a_slow_thread(const char* algorithm) {
  constexpr std::size_t kCount = 100'000;
  std::atomic<int> entered{0};
  testing::on_ranks(2, "shm", [&](Communicator& comm) {
    std::vector<float> in(kCount, 1.0f), out(kCount);
    CallOptions options;
    options.algorithm = algorithm;
    options.timeout = comm.rank() == 0 ? kGivesUpAfter : milliseconds(60'000);
    options.user_op.context = comm.rank() == 1 ? &entered : nullptr;
    options.user_op.combine = [](const void* from, void* inout, std::size_t count, void* context) {
      if (context != nullptr) {
        if (static_cast<std::atomic<int>*>(context)->fetch_add(1) == 0)
          internal::sleep_for(2 * kGivesUpAfter);
      }
      add(from, inout, count);
    };
    comm.barrier();
    try {
      comm.all_reduce(in.data(), out.data(), kCount, DataType::f32, ReduceOp::user, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::timeout) << error.what();
    }
    std::fill(out.begin(), out.end(), -5.0f);
    if (comm.rank() == 0) internal::sleep_for(2 * kGivesUpAfter);
    EXPECT_EQ(std::count(out.begin(), out.end(), -5.0f), static_cast<std::ptrdiff_t>(kCount));
  });
  EXPECT_GT(entered.load(), 0);
}

TEST(Stopped, AThreadsOperatorIsOutlastedWhereItWritesToOthers) { outlast_a_slow_thread("registered/fused"); }
TEST(Stopped, AThreadsOperatorStagesElse) { outlast_a_slow_thread(""); }

}  // namespace
}  // namespace lockstep
