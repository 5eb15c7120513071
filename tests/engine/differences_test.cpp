// Calls that differ between ranks, where nobody looks at them alone: far behind other calls, long over, or
// beside what goes on.
#include <algorithm>
#include <atomic>
#include <vector>

#include "tests/engine/local_ranks.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/thrown_by.hpp"
#include "tests/support/transports.hpp"
#include "transports/domain.hpp"

namespace lockstep {
namespace {

using testing::error_of;
using testing::eventually;
using testing::kPatience;
using testing::on_ranks;
using testing::thrown_by;

class Differences : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, Differences, ::testing::ValuesIn(lockstep::testing::transports_here()));

/// Starts `first`, and then so many more calls that what was called first would be forgotten if it were over.
void start_and_run_ahead(Communicator& comm, const std::function<Work()>& first) {
  std::vector<Work> works;
  works.push_back(first());
  std::vector<float> data(2 * internal::kRecentCalls * 1000);
  for (std::size_t at = 0; at < data.size(); at += 1000)
    works.push_back(comm.all_reduce_async(&data[at], &data[at], 1000, DataType::f32, ReduceOp::sum));
  for (Work& work : works) work.wait();
}

// Nobody may take another's later calls for agreement with the one before.
TEST_P(Differences, OfARankThatIsFarBehind) {
  for (const bool registered : {false, true}) {
    std::atomic<int> ahead{0};
    on_ranks(3, GetParam(), [&](Communicator& comm) {
      const std::size_t count = comm.rank() == 1 ? 200'000 : 100'000;
      std::vector<float> heap(registered ? 0 : 200'000, 1.0f);
      auto* const segment = static_cast<float*>(registered ? allocate(200'000 * sizeof(float)) : nullptr);
      float* const data = registered ? segment : heap.data();
      std::fill_n(data, 200'000, 1.0f);
      const auto start = [&] {
        Work work = comm.all_reduce_async(data, data, count, DataType::f32, ReduceOp::sum);
        ++ahead;
        return work;
      };
      const auto [code, text] = error_of([&] {
        if (comm.rank() == 1) {
          EXPECT_TRUE(eventually([&] { return ahead.load() == 2; }));
          comm.all_reduce(data, data, count, DataType::f32, ReduceOp::sum);
        } else {
          start_and_run_ahead(comm, start);
        }
      });
      EXPECT_EQ(code, ErrorCode::mismatch) << text;
      EXPECT_NE(text.find("operation #0 differs"), std::string::npos) << text;
      EXPECT_TRUE(std::all_of(data + count, data + 200'000, [](float x) { return x == 1.0f; }));
      if (registered) lockstep::free(segment);
    });
  }
}

TEST_P(Differences, OfRanksThatRanFarAhead) {
  on_ranks(3, GetParam(), [&](Communicator& comm) {
    std::vector<float> own(1000), all(3000);
    const auto [code, text] = error_of([&] {
      start_and_run_ahead(comm, [&] {
        if (comm.rank() == 1) return comm.broadcast_async(own.data(), own.size(), DataType::f32, 0);
        return comm.gather_async(own.data(), all.data(), own.size(), DataType::f32, 0);
      });
    });
    EXPECT_EQ(code, ErrorCode::mismatch) << text;
    EXPECT_NE(text.find("gather"), std::string::npos) << text;
    EXPECT_NE(text.find("broadcast"), std::string::npos) << text;
  });
}

// No rank of a broadcast but its root sends, so a wrong root may leave no trace but what nobody takes.
TEST_P(Differences, FoundWhereTheCallIsLongOver) {
  on_ranks(3, GetParam(), [&](Communicator& comm) {
    std::vector<float> data(100);
    const auto broadcast = [&](int root) { comm.broadcast(data.data(), data.size(), DataType::f32, root); };
    const auto [code, text] = error_of([&] {
      broadcast(comm.rank() == 1 ? 1 : 0);
      for (std::size_t i = 0; i < 2 * internal::kRecentCalls; ++i) broadcast(2);
      comm.barrier();
      comm.barrier();
    });
    EXPECT_EQ(code, ErrorCode::mismatch) << text;
    EXPECT_NE(text.find("operation #0 differs"), std::string::npos) << text;
  });
}

// Neither sends, so it takes a question to find out, and messages that move are no answer.
TEST_P(Differences, BesideMessagesThatGoOn) {
  on_ranks(2, GetParam(), [&](Communicator& comm) {
    CallOptions options;
    options.timeout = std::chrono::milliseconds(kPatience);
    std::vector<float> own(1000), all(2000);
    Work stuck = comm.rank() == 0
                     ? comm.gather_async(own.data(), all.data(), own.size(), DataType::f32, 0, options)
                     : comm.broadcast_async(own.data(), own.size(), DataType::f32, 0, options);
    const auto [code, text] = error_of([&] {
      for (float x = 0;;) {
        if (comm.rank() == 0) comm.send(&x, 1, DataType::f32, 1, 0);
        comm.recv(&x, 1, DataType::f32, 1 - comm.rank(), 0);
        if (comm.rank() == 1) comm.send(&x, 1, DataType::f32, 0, 0);
      }
    });
    EXPECT_EQ(code, ErrorCode::mismatch) << text;
  });
}

TEST_P(Differences, CountsForEachOther) {
  on_ranks(3, GetParam(), [&](Communicator& comm) {
    std::vector<float> from(6), to(30);
    const std::vector<std::size_t> sent(3, 2), taken{2, 2, comm.rank() == 0 ? std::size_t{3} : 2};
    const Error error = thrown_by([&] {
      comm.all_to_all_v(from.data(), sent, to.data(), taken, DataType::f32);
      comm.barrier();
    });
    EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
    EXPECT_EQ(error.culprit(), -1) << error.what();
    const std::string text = error.what();
    for (const char* part : {"operation #0", "rank 2", "sent 8 bytes where rank 0", "expects 12"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  });
}

}  // namespace
}  // namespace lockstep
