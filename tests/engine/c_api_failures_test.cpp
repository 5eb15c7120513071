// Failures through the C API, between real processes: the code, the text and the culprit of each.
#include <signal.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/engine/c_group.hpp"
#include "tests/support/transports.hpp"

namespace lockstep {
namespace {

using internal::testing::Board;
using internal::testing::run_forked;
using internal::testing::Shared;
using internal::testing::start_forked;
using internal::testing::wait_for;
using testing::alone;
using testing::CMeetingPlace;
using testing::fails;
using testing::last_error_says;
using testing::ok;

constexpr std::size_t kNumbers = 1000;

TEST(CApiLastError, IsTheThreads) {
  run_forked(1, [](int) {
    EXPECT_STREQ(lockstep_last_error(), "");
    EXPECT_EQ(lockstep_last_culprit(), -1);
    EXPECT_NE(lockstep_finalize(nullptr), LOCKSTEP_OK);
    const std::string mine = lockstep_last_error();
    EXPECT_NE(mine, "");
    std::thread([] {
      EXPECT_STREQ(lockstep_last_error(), "");
      EXPECT_NE(lockstep_work_wait(nullptr), LOCKSTEP_OK);
      EXPECT_STREQ(lockstep_last_error(), "work is NULL");
    }).join();
    EXPECT_EQ(lockstep_last_error(), mine);
    lockstep_comm_t comm = alone();  // It is the last failure's, whatever went well since.
    EXPECT_EQ(lockstep_last_error(), mine);
    lockstep_comm_free(comm);
  });
}

class CApiFailures : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, CApiFailures, ::testing::ValuesIn(testing::transports_here()),
                         [](const auto& transport) { return std::string(transport.param); });

/// A rank may still end a call well that another has spoilt; then it fails at the next.
lockstep_error_t until_it_fails(lockstep_comm_t comm, lockstep_error_t result) {
  for (int i = 0; i < 3 && result == LOCKSTEP_OK; ++i) result = lockstep_barrier(comm, nullptr, nullptr);
  return result;
}

TEST_P(CApiFailures, ADifferenceNamesBothSidesAndNoCulprit) {
  const CMeetingPlace place;
  Shared<Board> board;
  run_forked(2, [&](int rank) {
    lockstep_comm_t comm = place.join(rank, 2, GetParam());
    std::vector<float> data(kNumbers + 1);
    const lockstep_error_t result =
        lockstep_all_reduce(comm, data.data(), data.data(), kNumbers + static_cast<std::size_t>(rank),
                            LOCKSTEP_F32, LOCKSTEP_SUM, nullptr, nullptr);
    EXPECT_TRUE(fails(until_it_fails(comm, result), LOCKSTEP_MISMATCH, "f32 x 1000"));
    EXPECT_TRUE(last_error_says("f32 x 1001")) << lockstep_last_error();
    EXPECT_EQ(lockstep_state(comm), LOCKSTEP_MISMATCH);
    board->meet(2);
    lockstep_comm_free(comm);
  });
}

TEST_P(CApiFailures, AWrongCallOfOneRankIsRefusedOnAll) {
  const CMeetingPlace place;
  Shared<Board> board;
  run_forked(2, [&](int rank) {
    lockstep_comm_t comm = place.join(rank, 2, GetParam());
    std::vector<float> data(kNumbers, 3);
    const lockstep_error_t result =
        lockstep_all_reduce(comm, rank == 1 ? nullptr : data.data(), data.data(), kNumbers, LOCKSTEP_F32,
                            LOCKSTEP_SUM, nullptr, nullptr);
    EXPECT_TRUE(fails(until_it_fails(comm, result), rank == 1 ? LOCKSTEP_INVALID_ARGUMENT : LOCKSTEP_REFUSED,
                      "input is null", 1));
    EXPECT_EQ(std::count(data.begin(), data.end(), 3.0f), static_cast<std::ptrdiff_t>(kNumbers));
    board->meet(2);
    lockstep_comm_free(comm);
  });
}

TEST_P(CApiFailures, AnAbortEndsEverythingEverywhere) {
  const CMeetingPlace place;
  Shared<Board> board;
  run_forked(3, [&](int rank) {
    lockstep_comm_t comm = place.join(rank, 3, GetParam());
    ok(lockstep_barrier(comm, nullptr, nullptr));
    float x = 0;
    int done = 0;
    lockstep_work_t pending = nullptr;  // Nobody sends this.
    ok(lockstep_recv(comm, &x, 1, LOCKSTEP_F32, LOCKSTEP_ANY_SOURCE, 9, nullptr, nullptr, nullptr, nullptr,
                     &pending));
    board->meet(3);
    if (rank == 2) ok(lockstep_abort(comm, "enough"));
    EXPECT_TRUE(fails(lockstep_work_wait(pending), LOCKSTEP_ABORTED, "aborted: enough", 2));
    EXPECT_TRUE(last_error_says("rank 2")) << lockstep_last_error();
    ok(lockstep_work_test(pending, &done));  // Ended is ended; the error is told where it is waited for.
    EXPECT_EQ(done, 1);
    EXPECT_TRUE(fails(lockstep_work_wait_for(pending, 0, &done), LOCKSTEP_ABORTED, "aborted: enough", 2));
    lockstep_work_free(pending);
    EXPECT_TRUE(fails(lockstep_state(nullptr), LOCKSTEP_INVALID_ARGUMENT, "comm"));
    EXPECT_TRUE(
        fails(lockstep_state(comm), LOCKSTEP_ABORTED, "aborted: enough", 2));  // Not of the call before.
    EXPECT_TRUE(fails(lockstep_barrier(comm, nullptr, nullptr), LOCKSTEP_ABORTED, "aborted: enough", 2));
    ok(lockstep_abort(comm, "once more"));
    EXPECT_TRUE(fails(lockstep_barrier(comm, nullptr, nullptr), LOCKSTEP_ABORTED, "aborted: enough", 2));
    board->meet(3);
    lockstep_comm_free(comm);
  });
}

TEST(CApiAbort, NeedsNoReason) {
  run_forked(1, [](int) {
    lockstep_comm_t comm = alone();
    ok(lockstep_abort(comm, nullptr));
    EXPECT_TRUE(fails(lockstep_barrier(comm, nullptr, nullptr), LOCKSTEP_ABORTED, "lockstep_abort()", 0));
    lockstep_comm_free(comm);
  });
}

TEST_P(CApiFailures, AKilledRankIsTheCulprit) {
  const CMeetingPlace place;
  Shared<Board> board;
  const auto children = start_forked(3, [&](int rank) {
    lockstep_comm_t comm = place.join(rank, 3, GetParam());
    ok(lockstep_barrier(comm, nullptr, nullptr));
    board->meet(3);  // What it had to send for this has come.
    if (rank == 2) raise(SIGKILL);
    EXPECT_TRUE(fails(until_it_fails(comm, LOCKSTEP_OK), LOCKSTEP_PEER_LOST, "rank 2", 2));
    EXPECT_EQ(lockstep_state(comm), LOCKSTEP_PEER_LOST);
    lockstep_comm_free(comm);
  });
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), child == children[2] ? SIGKILL : 0);
}

TEST_P(CApiFailures, ADeadlineOfACallEndsIt) {
  const CMeetingPlace place;
  Shared<Board> board;
  run_forked(2, [&](int rank) {
    lockstep_comm_t comm = place.join(rank, 2, GetParam());
    ok(lockstep_barrier(comm, nullptr, nullptr));
    if (rank == 0) {
      float x = 5;
      lockstep_options_t options = LOCKSTEP_OPTIONS_INIT;
      options.timeout_ms = 20;
      EXPECT_EQ(lockstep_recv(comm, &x, 1, LOCKSTEP_F32, 1, 0, &options, nullptr, nullptr, nullptr, nullptr),
                LOCKSTEP_TIMEOUT)
          << lockstep_last_error();
      EXPECT_EQ(x, 5);
    }
    board->meet(2);
    lockstep_comm_free(comm);
  });
}

// As in C++, and no default: what is left of a caller's own limit may be less than nothing.
TEST_P(CApiFailures, ADeadlineThatHasPassedEndsACall) {
  const CMeetingPlace place;
  Shared<Board> board;
  run_forked(2, [&](int rank) {
    setenv("LOCKSTEP_TIMEOUT", "10s", 1);  // The end of this test where the default counted.
    lockstep_comm_t comm = place.join(rank, 2, GetParam());
    if (rank == 0) {
      lockstep_options_t options = LOCKSTEP_OPTIONS_INIT;
      options.timeout_ms = -2;
      EXPECT_EQ(lockstep_barrier(comm, &options, nullptr), LOCKSTEP_TIMEOUT);
      EXPECT_TRUE(last_error_says("the deadline of 0 ms")) << lockstep_last_error();
    }
    board->meet(2);
    lockstep_comm_free(comm);
  });
}

// Each kind of operation by its own options, as alone.
TEST_P(CApiFailures, ADeadlineInABatchEndsIt) {
  const CMeetingPlace place;
  Shared<Board> board;
  run_forked(2, [&](int rank) {
    std::vector<float> x(5000);  // Too many to be sent with nobody there.
    lockstep_options_t soon = LOCKSTEP_OPTIONS_INIT;
    soon.timeout_ms = 20;
    const auto each = {std::function([&](lockstep_batch_t batch) {
                         return lockstep_batch_all_reduce(batch, x.data(), x.data(), x.size(), LOCKSTEP_F32,
                                                          LOCKSTEP_SUM, &soon);
                       }),
                       std::function([&](lockstep_batch_t batch) {
                         return lockstep_batch_broadcast(batch, x.data(), x.size(), LOCKSTEP_F32, 1, &soon);
                       }),
                       std::function([&](lockstep_batch_t batch) {
                         return lockstep_batch_send(batch, x.data(), x.size(), LOCKSTEP_F32, 1, 0, &soon);
                       }),
                       std::function([&](lockstep_batch_t batch) {
                         return lockstep_batch_recv(batch, x.data(), x.size(), LOCKSTEP_F32, 1, 0, &soon);
                       })};
    for (const auto& add : each) {
      lockstep_comm_t comm = place.join(rank, 2, GetParam());
      if (rank == 0) {
        lockstep_batch_t batch = nullptr;
        ok(lockstep_batch_create(comm, &batch));
        ok(add(batch));
        EXPECT_EQ(lockstep_batch_submit(batch, nullptr), LOCKSTEP_TIMEOUT);
        EXPECT_TRUE(last_error_says("the deadline of 20 ms")) << lockstep_last_error();
        lockstep_batch_free(batch);
      }
      board->meet(2);
      lockstep_comm_free(comm);
    }
  });
}

TEST_P(CApiFailures, AMessageThatIsTooLongLeavesTheBuffer) {
  const CMeetingPlace place;
  Shared<Board> board;
  run_forked(2, [&](int rank) {
    lockstep_comm_t comm = place.join(rank, 2, GetParam());
    float data[3] = {1, 2, 3};
    if (rank == 1) {
      ok(lockstep_send(comm, data, 3, LOCKSTEP_F32, 0, 4, nullptr, nullptr));
    } else {
      std::size_t received = 77;
      EXPECT_NE(
          lockstep_recv(comm, data, 2, LOCKSTEP_F32, 1, 4, nullptr, nullptr, nullptr, &received, nullptr),
          LOCKSTEP_OK);
      EXPECT_NE(std::string(lockstep_last_error()), "");
      EXPECT_TRUE(data[0] == 1 && data[1] == 2 && data[2] == 3);
      EXPECT_EQ(received, 77u);
    }
    board->meet(2);
    lockstep_comm_free(comm);
  });
}

}  // namespace
}  // namespace lockstep
