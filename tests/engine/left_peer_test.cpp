// A rank that leaves in good order while its process lives on, or ends: what it sent arrives, and who waits
// for more is told.
#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "tests/engine/process_group.hpp"
#include "tests/support/thrown_by.hpp"
#include "tests/support/transports.hpp"

namespace lockstep {
namespace {

using internal::testing::run_forked;
using internal::testing::Shared;
using internal::testing::wait_until;
using testing::MeetingPlace;
using testing::thrown_by;

class LeftPeer : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, LeftPeer, ::testing::ValuesIn(lockstep::testing::transports_here()),
                         [](const auto& transport) { return std::string(transport.param); });

/// Long before any deadline, that rank 1 has left.
template <class Call>
void expect_lost(Call&& call) {
  const Error error = thrown_by(call);
  EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
  EXPECT_EQ(error.culprit(), 1) << error.what();
  EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
}

TEST_P(LeftPeer, IsNoLossWhereNothingIsAwaited) {
  MeetingPlace place;
  run_forked(3, [&](int rank) {
    Communicator comm = place.join(rank, 3, GetParam());
    std::int64_t x = 1;
    for (int i = 0; i < 50; ++i) comm.all_reduce(&x, &x, 1, DataType::i64, ReduceOp::max);
    // Ranks end as they come, without a common farewell.
  });
}

TEST_P(LeftPeer, LeavesWhatItSentToWhoHasNotLookedYet) {
  MeetingPlace place;
  Shared<std::atomic<bool>> left;
  run_forked(2, [&](int rank) {
    auto comm = std::make_unique<Communicator>(place.join(rank, 2, GetParam()));
    std::int64_t x = rank;
    if (rank == 1) {
      comm->send(&x, 1, DataType::i64, 0);
      comm.reset();
      left->store(true);
    } else {
      wait_until([&] { return left->load(); });
      comm->recv(&x, 1, DataType::i64, 1);
      EXPECT_EQ(x, 1);
    }
  });
}

TEST_P(LeftPeer, IsNamedByWhoWaitsForIt) {
  MeetingPlace place;
  run_forked(2, [&](int rank) {
    auto comm = std::make_unique<Communicator>(place.join(rank, 2, GetParam()));
    comm->barrier();
    if (rank == 1) return comm.reset();
    expect_lost([&] { comm->barrier(); });
  });
}

/// It lives on, so nothing but the group says that it has left; and it has never looked for who waits.
TEST_P(LeftPeer, ThatLivesOnIsNamedByWhoAlreadyWaits) {
  using Call = Work (*)(Communicator&, float*, const CallOptions&);
  constexpr Call kCalls[] = {
      [](Communicator& comm, float*, const CallOptions& options) { return comm.barrier_async(options); },
      [](Communicator& comm, float* x, const CallOptions& options) {
        return comm.broadcast_async(x, 1, DataType::f32, 1, options);
      },
      [](Communicator& comm, float* x, const CallOptions& options) {
        return comm.recv_async(x, 1, DataType::f32, 1, 0, options);
      }};
  for (const Call call : kCalls) {
    MeetingPlace place;
    Shared<std::atomic<int>> turn;
    run_forked(2, [&](int rank) {
      auto comm = std::make_unique<Communicator>(place.join(rank, 2, GetParam()));
      if (rank == 1) {
        wait_until([&] { return turn->load() == 1; });
        comm.reset();
        return wait_until([&] { return turn->load() == 2; });
      }
      CallOptions options;
      options.timeout = std::chrono::seconds(60);
      float x = 0;
      Work work = call(*comm, &x, options);
      static_cast<void>(work.wait_for(std::chrono::milliseconds(20)));
      turn->store(1);
      expect_lost([&] { work.wait(); });
      turn->store(2);
    });
  }
}

/// On links that the rank that left has never had.
TEST_P(LeftPeer, ThatLivesOnIsNamedByWhoCallsOtherwiseThanBefore) {
  MeetingPlace place;
  Shared<std::atomic<int>> turn;
  run_forked(2, [&](int rank) {
    auto comm = std::make_unique<Communicator>(place.join(rank, 2, GetParam()));
    comm->barrier();
    if (rank == 1) {
      comm.reset();
      turn->store(1);
      return wait_until([&] { return turn->load() == 2; });
    }
    wait_until([&] { return turn->load() == 1; });
    CallOptions options;
    options.timeout = std::chrono::seconds(60);
    options.priority = 1;
    float x = 0;
    expect_lost([&] { comm->recv(&x, 1, DataType::f32, 1, 0, options); });
    expect_lost([&] { comm->barrier(options); });
    turn->store(2);
  });
}

}  // namespace
}  // namespace lockstep
