// Operations that nobody waits for, or not any more: they move, and their deadlines and mismatches come.
#include <atomic>
#include <optional>

#include "collectives/engine/limits.hpp"
#include "collectives/engine/operation.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/thrown_by.hpp"
#include "tests/support/transports.hpp"

namespace lockstep {
namespace {

using testing::error_of;
using testing::eventually;
using testing::kPatience;
using testing::on_ranks;
using testing::thrown_by;

class Unattended : public ::testing::TestWithParam<const char*> {
 protected:
  /// Rank 0 does `body` while rank 1 stays, and calls nothing.
  static void beside_an_absent_rank(const std::function<void(Communicator&)>& body) {
    std::atomic<bool> over{false};
    on_ranks(2, GetParam(), [&](Communicator& comm) {
      comm.barrier();
      if (comm.rank() == 0) {
        body(comm);
        over.store(true);
      } else {
        EXPECT_TRUE(eventually([&] { return over.load(); }, 3 * kPatience));
      }
    });
  }
  static CallOptions within(int milliseconds) {
    CallOptions options;
    options.timeout = std::chrono::milliseconds(milliseconds);
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, Unattended, ::testing::ValuesIn(testing::transports_here()));

TEST_P(Unattended, MovesOnAfterAWaitThatExpired) {
  std::atomic<bool> expired{false};
  on_ranks(2, GetParam(), [&](Communicator& comm) {
    std::vector<float> data(1'000'000, 1.0f);
    const auto start = [&] {
      return comm.all_reduce_async(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::sum);
    };
    std::optional<Work> work;
    if (comm.rank() == 0) {
      work = start();
      EXPECT_FALSE(work->wait_for(std::chrono::milliseconds(1)));
      expired.store(true);
    } else {
      ASSERT_TRUE(eventually([&] { return expired.load(); }));
      work = start();
    }
    EXPECT_TRUE(eventually([&] { return work->operation()->done.load(); })) << "rank " << comm.rank();
    work->wait();
    EXPECT_EQ(data.back(), 2.0f);
  });
}

TEST_P(Unattended, EndsAtItsDeadline) {
  beside_an_absent_rank([](Communicator& comm) {
    float x = 1;
    const Work work = comm.all_reduce_async(&x, &x, 1, DataType::f32, ReduceOp::sum, within(100));
    EXPECT_TRUE(eventually([&] { return work.error() == ErrorCode::timeout; }));
  });
}

TEST_P(Unattended, AReceiveEndsAtItsDeadline) {
  beside_an_absent_rank([](Communicator& comm) {
    float x = 1;
    const Work work = comm.recv_async(&x, 1, DataType::f32, 1, 0, within(100));
    EXPECT_TRUE(eventually([&] { return work.error() == ErrorCode::timeout; }));
  });
}

TEST_P(Unattended, AMismatchIsFoundWhereNeitherSends) {
  std::atomic<int> found{0};
  on_ranks(2, GetParam(), [&](Communicator& comm) {
    std::vector<float> own(1000), all(2000);
    comm.barrier();
    // Each receives from the other.
    const Work work = comm.rank() == 0 ? comm.gather_async(own.data(), all.data(), 1000, DataType::f32, 0)
                                       : comm.broadcast_async(all.data(), 1000, DataType::f32, 0);
    EXPECT_TRUE(eventually([&] { return work.error() == ErrorCode::mismatch; })) << "rank " << comm.rank();
    found.fetch_add(1);
    EXPECT_TRUE(eventually([&] { return found.load() == 2; }, 2 * kPatience));
  });
}

TEST_P(Unattended, HearsOfAnAbortThoughItOnlyReceives) {
  std::atomic<bool> heard{false};
  on_ranks(2, GetParam(), [&](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 0) {
      float x = 0;
      const Work work = comm.recv_async(&x, 1, DataType::f32, 1, 0, within(0));
      EXPECT_TRUE(eventually([&] { return work.error() == ErrorCode::aborted; }));
      heard.store(true);
    } else {
      comm.abort("enough");  // And lives on.
      EXPECT_TRUE(eventually([&] { return heard.load(); }, 2 * kPatience));
    }
  });
}

TEST_P(Unattended, AQueuedCallEndsAtItsDeadline) {
  beside_an_absent_rank([](Communicator& comm) {
    std::vector<Work> others;
    for (std::size_t i = 0; i < internal::kMaxInFlight; ++i) others.push_back(comm.barrier_async(within(0)));
    Work queued = comm.barrier_async(within(100));
    const Error error = thrown_by([&] { EXPECT_TRUE(queued.wait_for(kPatience)); });
    EXPECT_EQ(error.code(), ErrorCode::timeout);
    const std::string what = error.what();
    EXPECT_NE(what.find("waits for an earlier operation, barrier #"), std::string::npos) << what;
    EXPECT_NE(what.find(", which waits for rank 1 ("), std::string::npos) << what;
  });
}

/// In shared memory it is looked at first, and waits behind the others all the same.
TEST_P(Unattended, AnUrgentCallThatIsLateNamesARankToo) {
  beside_an_absent_rank([](Communicator& comm) {
    std::vector<float> data(10'000);
    const auto start = [&](const CallOptions& options) {
      return comm.all_reduce_async(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::sum,
                                   options);
    };
    Work first = start(within(0));
    CallOptions urgent = within(100);
    urgent.priority = 1;
    Work second = start(urgent);
    const auto [code, what] = error_of([&] { EXPECT_TRUE(second.wait_for(kPatience)); });
    EXPECT_EQ(code, ErrorCode::timeout);
    EXPECT_NE(what.find("waits for rank 1 ("), std::string::npos) << what;
  });
}

}  // namespace
}  // namespace lockstep
