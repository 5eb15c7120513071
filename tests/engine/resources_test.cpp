// What a rank costs beside the caller's buffers: processor time while it waits, and memory.
//
// `resources_test --operations N` repeats more operations than the suite has time for; tools/test --soak does
// so.

#include <fstream>
#include <vector>

#include "tests/engine/process_group.hpp"
#include "tests/support/bounds.hpp"
#include "tests/support/count_option.hpp"
#include "tests/support/cpu_time.hpp"
#include "tests/support/sanitized.hpp"

namespace lockstep {
namespace {

using internal::testing::run_forked;
using testing::allowed;
using testing::cpu_time;
using testing::MeetingPlace;

/// Memory of this process that is nobody else's and in use: neither files nor what the ranks share.
std::size_t private_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoul(line.substr(8)) << 10;
  }
  return 0;
}
/// Memory that the ranks share, as far as this process has touched it.
std::size_t shared_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssShmem:")) return std::stoul(line.substr(9)) << 10;
  }
  return 0;
}
/// What one of `ranks` costs: what is its own, and its part of what all map and touch.
std::size_t used_bytes(std::size_t ranks) { return private_bytes() + shared_bytes() / ranks; }

/// How long it is watched: as the promise says, or less where ten times as much is allowed.
std::chrono::nanoseconds idle_time() { return std::chrono::seconds(testing::strict_bounds() ? 10 : 3); }

class Resources : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, Resources, ::testing::Values("shm", "tcp"),
                         [](const auto& transport) { return std::string(transport.param); });

TEST_P(Resources, AnIdleWaitTakesNoProcessor) {
  MeetingPlace place;
  run_forked(3, [&](int rank) {
    const std::chrono::nanoseconds idle = idle_time();
    Communicator comm = place.join(rank, 3, GetParam());
    float x = 1;
    comm.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum);
    comm.barrier();
    const auto before = cpu_time();
    if (rank == 0) internal::sleep_for(idle);
    if (rank == 1) {
      comm.barrier();
    } else {
      comm.barrier_async({}).wait();  // Of rank 0 the barrier is short, of rank 2 its thread waits as well.
    }
    EXPECT_LT(cpu_time() - before, allowed(idle / 100)) << "rank " << rank;
    comm.finalize();
  });
}

TEST_P(Resources, AnOperationNobodyWaitsForTakesNoProcessor) {
  MeetingPlace place;
  run_forked(2, [&](int rank) {
    const std::chrono::nanoseconds idle = idle_time();
    Communicator comm = place.join(rank, 2, GetParam());
    std::vector<float> data(1 << 20, 1.0f);
    comm.barrier();
    const auto before = cpu_time();
    Work work;
    if (rank == 1)
      work = comm.all_reduce_async(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::sum);
    internal::sleep_for(idle);
    EXPECT_LT(cpu_time() - before, allowed(idle / 100)) << "rank " << rank;
    if (rank == 0)
      work = comm.all_reduce_async(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::sum);
    work.wait();
    EXPECT_EQ(data[7], 2.0f);
    comm.finalize();
  });
}

TEST_P(Resources, ALongPremultipliedSumLeavesNoCopyOfItsInput) {
  MeetingPlace place;
  run_forked(2, [&](int rank) {
    Communicator comm = place.join(rank, 2, GetParam());
    std::vector<float> data(8 << 20, 1.0f);
    CallOptions options;
    options.scale = 0.5;
    const auto sum = [&](std::size_t count) {
      comm.reduce(data.data(), data.data(), count, DataType::f32, ReduceOp::premul_sum, 0, options);
    };
    sum(1000);
    const std::size_t before = private_bytes();
    sum(data.size());
    if (!testing::kSanitized) {  // Which keeps what is freed for a while.
      EXPECT_LT(private_bytes(), before + data.size() * sizeof(float) / 2) << "rank " << rank;
    }
    if (rank == 0) {
      EXPECT_EQ(data.back(), 1.0f);
    }
    comm.finalize();
  });
}

// As many calls at once as run side by side, then calls of many shapes.
TEST_P(Resources, ABusyTimeLeavesLittle) {
  constexpr std::size_t kCount = 1 << 18, kAtOnce = 64, kShapes = 100, kShift = 256;
  MeetingPlace place;
  run_forked(2, [&](int rank) {
    std::vector<float> data(kCount * kAtOnce, 1.0f);
    const std::size_t before = used_bytes(2);
    Communicator comm = place.join(rank, 2, GetParam());
    std::vector<Work> works;
    for (std::size_t i = 0; i < kAtOnce; ++i)
      works.push_back(
          comm.all_reduce_async(&data[i * kCount], &data[i * kCount], kCount, DataType::f32, ReduceOp::max));
    for (Work& work : works) work.wait();
    works.clear();
    for (std::size_t i = 0; i < kShapes; ++i)
      comm.all_reduce(data.data(), data.data(), data.size() - i * kShift, DataType::f32, ReduceOp::max);
    const std::size_t used = used_bytes(2) - before;
    if (!testing::kSanitized) {
      EXPECT_LE(used, (8 << 20) + (64 << 10)) << "rank " << rank;
    }
    if (rank == 0) std::printf("%s: %zu KiB after a busy time\n", GetParam(), used >> 10);
    std::fflush(stdout);
    comm.finalize();
  });
}

TEST_P(Resources, MemoryIsBoundedAndDoesNotGrow) {
  constexpr int kRanks = 4;
  constexpr std::size_t kPerRank = 8 << 20, kPerPeer = 64 << 10;
  constexpr std::size_t kLargest = 1 << 18;
  MeetingPlace place;
  run_forked(kRanks, [&](int rank) {
    alarm(0);  // The number of operations bounds the time.
    std::vector<float> input(kLargest, 1.0f), output(kLargest * kRanks, 1.0f);
    const std::size_t before = used_bytes(kRanks);
    Communicator comm = place.join(rank, kRanks, GetParam());
    // One round has every size from one element to the largest, so that each round needs what the first did.
    const auto round = [&] {
      for (std::size_t count = 1; count <= kLargest; count *= 4) {
        comm.all_reduce(input.data(), output.data(), count, DataType::f32, ReduceOp::max);
        comm.all_gather(input.data(), output.data(), count / 4, DataType::f32);
        comm.reduce_scatter(output.data(), input.data(), count / 4, DataType::f32, ReduceOp::max);
        comm.broadcast(input.data(), count, DataType::f32, 0);
        comm.all_to_all(input.data(), output.data(), count / 4, DataType::f32);
        for (int i = 0; i < 20; ++i)
          comm.all_reduce(input.data(), output.data(), 4, DataType::f32, ReduceOp::max);
      }
    };
    constexpr std::uint64_t kOfARound = 10 * 25;
    for (int i = 0; i < 3; ++i) round();
    const std::size_t used = used_bytes(kRanks) - before, warm = private_bytes() + shared_bytes();
    if (!testing::kSanitized) {  // Which keeps books of its own beside the library's memory.
      EXPECT_LE(used, kPerRank + (kRanks - 1) * kPerPeer) << "rank " << rank;
    }
    for (std::uint64_t done = 0; done < testing::count_option(1'000); done += kOfARound) round();
    const std::size_t after = private_bytes() + shared_bytes();
    // A sanitizer keeps what was freed for a while.
    EXPECT_LE(after, warm + ((testing::kSanitized ? 512 : 256) << 10)) << "rank " << rank;
    if (rank == 0) {
      std::printf("%s: %zu KiB after the first operations, %zd KiB more after the last\n", GetParam(),
                  used >> 10,
                  (static_cast<std::ptrdiff_t>(after) - static_cast<std::ptrdiff_t>(warm)) / 1024);
      std::fflush(stdout);
    }
    comm.finalize();
  });
}

}  // namespace
}  // namespace lockstep
