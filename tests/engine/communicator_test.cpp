// The public face with ranks as threads: every way to start, wait for and end an operation.
#include "lockstep/communicator.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <numeric>

#include "collectives/engine/operation.hpp"
#include "collectives/make_transport.hpp"
#include "lib/base/config.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/engine/slow_operator.hpp"
#include "tests/support/transports.hpp"

namespace lockstep {
namespace {

using testing::error_of;
using testing::on_ranks;

class OverTransport : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, OverTransport,
                         ::testing::ValuesIn(lockstep::testing::transports_here()));

std::vector<float> ramp(std::size_t count, float first) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

TEST_P(OverTransport, AllReduceOfEverySizeClass) {
  on_ranks(3, GetParam(), [](Communicator& comm) {
    for (const std::size_t count : {0, 1, 2, 9, 11, 255, 5000, 70001, 400000}) {
      const auto input = ramp(count, static_cast<float>(comm.rank()));
      std::vector<float> output(count, -1.0f);
      comm.all_reduce(input.data(), output.data(), count, DataType::f32, ReduceOp::sum);
      for (std::size_t i = 0; i < count; ++i) {
        const float want = 3.0f * static_cast<float>(i) + 3.0f;
        ASSERT_EQ(output[i], want) << count << " elements, at " << i;
      }
    }
  });
}

TEST_P(OverTransport, ManyInFlightEndInAnyOrderOfWaiting) {
  on_ranks(4, GetParam(), [](Communicator& comm) {
    constexpr std::size_t kOperations = 100;  // More than may run at once.
    std::vector<std::vector<std::int64_t>> data(kOperations, std::vector<std::int64_t>(100));
    std::vector<Work> works;
    for (std::size_t i = 0; i < kOperations; ++i) {
      std::fill(data[i].begin(), data[i].end(), static_cast<std::int64_t>(i) + comm.rank());
      works.push_back(
          comm.all_reduce_async(data[i].data(), data[i].data(), 100, DataType::i64, ReduceOp::sum));
    }
    for (std::size_t i = kOperations; i-- > 0;) {
      works[i].wait();
      ASSERT_EQ(data[i][50], static_cast<std::int64_t>(4 * i + 6));
    }
  });
}

TEST_P(OverTransport, UnattendedOperationsMoveByThemselves) {
  on_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<float> data(100000, 1.0f);
    Work work = comm.all_reduce_async(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::sum);
    while (!work.operation()->done.load()) std::this_thread::yield();  // Looks only: the reactor drives.
    work.wait();
    EXPECT_EQ(data.front(), 2.0f);
  });
}

TEST_P(OverTransport, TaggedMessagesAndAnySource) {
  on_ranks(3, GetParam(), [](Communicator& comm) {
    for (const std::size_t count : {std::size_t{3}, std::size_t{100000}}) {
      if (comm.rank() == 0) {
        std::vector<int> seen;
        for (int i = 0; i < 2; ++i) {
          std::vector<float> buffer(count);
          const RecvStatus status = comm.recv(buffer.data(), count, DataType::f32, kAnySource, 7);
          EXPECT_EQ(status.count, count);
          EXPECT_EQ(buffer.back(), static_cast<float>(status.source));
          seen.push_back(status.source);
        }
        EXPECT_NE(seen[0], seen[1]);
        std::vector<float> late(count);
        EXPECT_EQ(comm.recv(late.data(), count, DataType::f32, 1, 3).tag, 3);
        EXPECT_EQ(late.front(), 33.0f);
      } else {
        const std::vector<float> first(count, 33.0f), second(count, static_cast<float>(comm.rank()));
        Work early;
        if (comm.rank() == 1) early = comm.send_async(first.data(), count, DataType::f32, 0, 3);
        comm.send(second.data(), count, DataType::f32, 0, 7);
        early.wait();
      }
      comm.barrier();  // A message of the next round must not meet a receive of this one.
    }
  });
}

TEST_P(OverTransport, MessageToOneself) {
  on_ranks(2, GetParam(), [](Communicator& comm) {
    const auto data = ramp(10000, 1.0f);
    std::vector<float> copy(10000);
    Work receive = comm.recv_async(copy.data(), copy.size(), DataType::f32, comm.rank(), 1);
    comm.send(data.data(), data.size(), DataType::f32, comm.rank(), 1);
    receive.wait();
    EXPECT_EQ(copy, data);
  });
}

TEST_P(OverTransport, LimitsOfCenturiesAreNotShort) {
  on_ranks(2, GetParam(), [](Communicator& comm) {
    CallOptions patient;
    patient.timeout = std::chrono::milliseconds(18'446'744'073'710);
    float x = 1;
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    comm.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum, patient);
    if (comm.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    Work work = comm.all_reduce_async(&x, &x, 1, DataType::f32, ReduceOp::sum, patient);
    EXPECT_TRUE(work.wait_for(std::chrono::microseconds(18'446'744'073'709'552)));
    EXPECT_EQ(x, 4.0f);
  });
}

TEST_P(OverTransport, PlanRunsAgainAndAgain) {
  on_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<float> data(1000);
    Plan plan = comm.plan_all_reduce(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::avg);
    for (int i = 0; i < 20; ++i) {
      std::fill(data.begin(), data.end(), static_cast<float>(i + 2 * comm.rank()));
      plan.run();
      ASSERT_EQ(data[999], static_cast<float>(i + 1));
    }
  });
}

TEST_P(OverTransport, SplitByColorOrderedByKey) {
  on_ranks(5, GetParam(), [](Communicator& comm) {
    auto part = comm.split(comm.rank() == 4 ? -1 : comm.rank() % 2, -comm.rank());
    ASSERT_EQ(part.has_value(), comm.rank() != 4);
    if (!part) return;
    EXPECT_EQ(part->size(), 2);
    EXPECT_EQ(part->rank(), comm.rank() < 2 ? 1 : 0);
    std::int64_t value = comm.rank();
    part->all_reduce(&value, &value, 1, DataType::i64, ReduceOp::sum);
    EXPECT_EQ(value, comm.rank() % 2 == 0 ? 2 : 4);
  });
}

/// Which group a rank comes to first is chance: often another one than its peer.
TEST_P(OverTransport, GroupsThatThreadsSplitAtOnceDoNotWaitForEachOther) {
  on_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([rank = comm.rank(), whole = std::move(*comm.split(0, comm.rank()))]() mutable {
        for (int split = 0; split < 10; ++split) EXPECT_EQ(whole.split(0, rank)->size(), 2);
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST_P(OverTransport, VariantsWithCounts) {
  on_ranks(3, GetParam(), [](Communicator& comm) {
    const std::vector<std::size_t> counts{2, 0, 5};
    const auto r = static_cast<std::size_t>(comm.rank());
    const std::vector<float> own(counts[r], static_cast<float>(r));
    std::vector<float> all(7), reduced(counts[r]), gathered(7), scattered(counts[r]);
    comm.all_gather_v(own.data(), all.data(), counts, DataType::f32);
    EXPECT_EQ(all, (std::vector<float>{0, 0, 2, 2, 2, 2, 2}));
    comm.reduce_scatter_v(all.data(), reduced.data(), counts, DataType::f32, ReduceOp::sum);
    for (const float value : reduced) EXPECT_EQ(value, 3.0f * static_cast<float>(r));
    comm.gather_v(own.data(), own.size(), gathered.data(), counts, DataType::f32, 1);
    if (r == 1) {
      EXPECT_EQ(gathered, all);
    }
    comm.scatter_v(gathered.data(), counts, scattered.data(), scattered.size(), DataType::f32, 1);
    EXPECT_EQ(scattered, own);
    const std::vector<std::size_t> send{r, r, r}, receive{0, 1, 2};
    const std::vector<float> mine(3 * r, static_cast<float>(r));
    std::vector<float> theirs(3);
    comm.all_to_all_v(mine.data(), send, theirs.data(), receive, DataType::f32);
    EXPECT_EQ(theirs, (std::vector<float>{1, 2, 2}));
  });
}

TEST_P(OverTransport, UserOperatorAndPremultipliedSum) {
  on_ranks(3, GetParam(), [](Communicator& comm) {
    CallOptions options;
    options.user_op.combine = [](const void* in, void* inout, std::size_t count, void*) {
      for (std::size_t i = 0; i < count; ++i) {
        auto& to = static_cast<std::int32_t*>(inout)[i];
        to = std::max(to, static_cast<const std::int32_t*>(in)[i]);
      }
    };
    std::vector<std::int32_t> values(3000, comm.rank());
    comm.all_reduce(values.data(), values.data(), values.size(), DataType::i32, ReduceOp::user, options);
    EXPECT_EQ(values[2999], 2);
    options.scale = comm.rank() + 1.0;
    std::vector<float> input(100, 1.0f), output(100);
    comm.all_reduce(input.data(), output.data(), 100, DataType::f32, ReduceOp::premul_sum, options);
    EXPECT_EQ(output[99], 6.0f);
    EXPECT_EQ(input[99], 1.0f);
    options.scale = 100;
    std::vector<std::int8_t> bytes(100, 7), products(100);
    comm.all_reduce(bytes.data(), products.data(), 100, DataType::i8, ReduceOp::premul_sum, options);
    EXPECT_EQ(products[99], static_cast<std::int8_t>(3 * 7 * 100));
  });
}

TEST_P(OverTransport, WaitForLeavesTheOperationRunning) {
  std::atomic<bool> go{false};
  on_ranks(2, GetParam(), [&](Communicator& comm) {
    float value = 1.0f;
    if (comm.rank() == 1) {
      while (!go.load()) std::this_thread::yield();
      comm.all_reduce(&value, &value, 1, DataType::f32, ReduceOp::sum);
    } else {
      Work work = comm.all_reduce_async(&value, &value, 1, DataType::f32, ReduceOp::sum);
      EXPECT_FALSE(work.wait_for(std::chrono::milliseconds(5)));
      EXPECT_FALSE(work.test());
      go.store(true);
      work.wait();
    }
    EXPECT_EQ(value, 2.0f);
  });
}

TEST(WaitFor, EndsAtItsLimitWhileDataMove) {
  on_ranks(2, "shm", [](Communicator& comm) {
    testing::SlowBuffer buffer(5 * internal::kMovesPerLook);
    Work work = comm.all_reduce_async(buffer.data(), buffer.data(), buffer.bytes(), DataType::u8,
                                      ReduceOp::user, testing::with_slow_operator());
    EXPECT_FALSE(work.wait_for(std::chrono::milliseconds(1)));
    work.wait();
  });
}

TEST(OneRank, HearsOfATransportThatIsNone) {
  const auto [code, text] = error_of([] { Communicator::local_group(1, "tpc"); });
  EXPECT_EQ(code, ErrorCode::configuration);
  EXPECT_EQ(text, "transport 'tpc' is unknown: write one of auto|shm|tcp|ucx|verbs|shm+tcp|shm+verbs");
}

TEST(Transports, TheVariableAllowsThoseThatThereAre) {
  const auto all = internal::variables();
  const auto transports = std::find_if(all.begin(), all.end(), [](const internal::Variable& variable) {
    return variable.name == "LOCKSTEP_TRANSPORTS";
  });
  ASSERT_NE(transports, all.end());
  EXPECT_EQ(transports->choices, internal::transport_choices());
}

TEST(OneRank, AnIntegerIsNotMultipliedByAFraction) {
  auto group = Communicator::local_group(1);
  std::int32_t value = 6;
  for (const double factor : {0.5, 0x1p53, std::numeric_limits<double>::quiet_NaN()}) {
    CallOptions options;
    options.scale = factor;
    const auto [code, text] = error_of(
        [&] { group.front().all_reduce(&value, &value, 1, DataType::i32, ReduceOp::premul_sum, options); });
    EXPECT_EQ(code, ErrorCode::invalid_argument) << text;
  }
}

TEST(OneRank, AComplexNumberIsAlignedAsItsParts) {
  auto group = Communicator::local_group(1);
  alignas(8) float in[3] = {1, 2, 3}, out[3] = {};
  group.front().all_reduce(&in[1], &out[1], 1, DataType::complex64, ReduceOp::sum);
  EXPECT_EQ(out[2], 3.0f);
}

TEST(OneRank, EveryCollectiveIsACopy) {
  auto group = Communicator::local_group(1);
  Communicator& comm = group.front();
  const auto input = ramp(100, 5.0f);
  std::vector<float> output(100);
  comm.all_reduce(input.data(), output.data(), 100, DataType::f32, ReduceOp::avg);
  EXPECT_EQ(output, input);
  comm.barrier();
  std::vector<float> gathered(100);
  comm.all_gather(input.data(), gathered.data(), 100, DataType::f32);
  EXPECT_EQ(gathered, input);
  EXPECT_EQ(error_of([&] { comm.broadcast(nullptr, 5, DataType::f32, 0); }).first,
            ErrorCode::invalid_argument);
  comm.barrier();  // A refused call of a lone rank harms nobody.
}

TEST(OneRank, AnAlgorithmOfSharedMemoryIsAsGoodAsAnyOther) {
  auto group = Communicator::local_group(1);
  float x = 3;
  CallOptions options;
  for (const char* name : {"one_shot", "registered/fused", "ring"}) {
    options.algorithm = name;
    group.front().all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum, options);
  }
  options.algorithm = "nonsense";
  EXPECT_EQ(
      error_of([&] { group.front().all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum, options); }).first,
      ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace lockstep
