// Calls on private buffers that read members' memory through the kernel, and what becomes of them where one
// rank may not.
#include <sys/mman.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/engine/can_pull.hpp"
#include "tests/engine/process_group.hpp"
#include "tests/engine/public_call.hpp"
#include "tests/support/refused_call.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using internal::CallBuffers;
using internal::CollectiveCase;
using internal::testing::run_forked;
using internal::testing::start_forked;
using internal::testing::wait_for;
using testing::can_pull;
using testing::MeetingPlace;
using testing::thrown_by;

constexpr std::array kPulled{Collective::broadcast,  Collective::scatter,      Collective::gather,
                             Collective::all_gather, Collective::all_gather_v, Collective::all_to_all};

/// From now on reading another process's memory fails here, as in a container without that system call. False
/// where system calls cannot be forbidden.
bool forbid_reading() { return testing::refuse_call(SYS_process_vm_readv, EPERM); }

bool can_forbid() {
  return wait_for(start_forked(1, [](int) { _exit(forbid_reading() ? 0 : 1); }).front()) == 0;
}

/// Runs `what` on memory that is `registered` on this rank, and checks the result; three times by the
/// blocking call, whose second and third keep what they can, where the library chooses the algorithm.
void run_checked(Communicator& communicator, const CollectiveCase& what, bool registered,
                 const std::string& algorithm) {
  const std::size_t bytes = CallBuffers::bytes_needed(what);
  std::vector<std::byte> heap(registered ? 0 : bytes);
  auto* const segment = registered ? static_cast<std::byte*>(allocate(bytes)) : nullptr;
  const auto run = [&](const auto& call) {
    const CallBuffers buffers(what, communicator.rank(), false,
                              registered ? std::span(segment, bytes) : std::span(heap));
    call(buffers);
    EXPECT_EQ(buffers.check_result(), "") << what.describe();
  };
  CallOptions options;
  options.algorithm = algorithm;
  run([&](const CallBuffers& buffers) { start_public(communicator, what, buffers, options).wait(); });
  for (int i = 0; i < 3 && algorithm.empty(); ++i)
    run([&](const CallBuffers& buffers) { run_public(communicator, what, buffers); });
  if (registered) lockstep::free(segment);
}

TEST(Pulled, IsRightOnPrivateMemoryAndOnSomeRegistered) {
  for (const int world : {2, 3}) {
    const MeetingPlace place;
    run_forked(world, [&](int rank) {
      Communicator communicator = place.join(rank, world, "shm");
      if (!can_pull(communicator)) GTEST_SKIP() << "these processes may not read each other's memory";
      std::uint64_t turn = 0;
      for (const Collective collective : kPulled) {
        for (const std::size_t count : {0, 1, 1001, 200'000}) {
          for (const bool mixed : {false, true}) {
            const CollectiveCase what{collective,
                                      DataType::f32,
                                      ReduceOp::sum,
                                      world,
                                      static_cast<int>(++turn % static_cast<std::uint64_t>(world)),
                                      count,
                                      turn};
            run_checked(communicator, what, mixed && rank == 1, "pulled/direct");
          }
        }
      }
      communicator.finalize();
    });
  }
}

constexpr const char* kAlwaysPull = R"({"schema": "lockstep-tuning", "version": 1,
    "overrides": "broadcast:*=pulled/direct;scatter:*=pulled/direct;gather:*=pulled/direct;all_gather:*=pulled/direct;all_gather_v:*=pulled/direct;all_to_all:*=pulled/direct"})";

// Repeated calls of one shape that are pulled, registered and staged by turns.
TEST(Pulled, RepeatedCallsGoTheWayOfTheirBuffers) {
  const MeetingPlace place;
  constexpr int kRanks = 3;
  const internal::TemporaryDirectory directory;
  const std::string tuning = directory.write("model.json", kAlwaysPull);
  run_forked(kRanks, [&](int rank) {
    setenv("LOCKSTEP_TUNING", tuning.c_str(), 1);
    Communicator communicator = place.join(rank, kRanks, "shm");
    for (const Collective collective : kPulled) {
      for (std::size_t turn = 0; turn < 8; ++turn) {
        const bool registered = turn % 4 == 1 || (turn % 4 == 2 && rank == 1);
        run_checked(communicator, {collective, DataType::f32, ReduceOp::sum, kRanks, 1, 1001, turn},
                    registered, "");
      }
    }
    communicator.finalize();
  });
}

/// Whether this process's first thread has ended, and with it what the kernel finds by the process's number.
bool has_lost_first_thread() {
  const std::string number = std::to_string(getpid());
  std::string stat;
  std::getline(std::ifstream("/proc/self/task/" + number + "/stat"), stat);
  return stat.find(") Z ") != std::string::npos;
}

/// Runs `body` on another thread, with which this process exits, once this thread, its first, has ended.
[[noreturn]] void go_on_without_first_thread(const std::function<void()>& body) {
  std::thread([&] {
    internal::testing::wait_until(has_lost_first_thread);
    body();
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }).detach();
  syscall(SYS_exit, 0);  // Of a thread, which leaves its stack as it is.
  __builtin_unreachable();
}

TEST(Pulled, ARankWhoseFirstThreadHasEndedIsReadAndReads) {
  const MeetingPlace place;
  constexpr int kRanks = 2;
  run_forked(kRanks, [&](int rank) {
    Communicator communicator = place.join(rank, kRanks, "shm");
    if (!can_pull(communicator)) GTEST_SKIP() << "these processes may not read each other's memory";
    const auto call_all = [&] {
      for (const Collective collective : kPulled)
        run_checked(communicator, {collective, DataType::f32, ReduceOp::sum, kRanks, 1, 1001, 1}, false,
                    "pulled/direct");
    };
    call_all();
    const auto go_on = [&] {
      call_all();
      communicator.finalize();
    };
    if (rank == 1) go_on_without_first_thread(go_on);
    go_on();
  });
}

// As memory of devices is: the process itself reads it.
TEST(Pulled, WhatTheKernelDoesNotReadForOthersIsStaged) {
  const MeetingPlace place;
  constexpr int kRanks = 2;
  constexpr std::size_t kBytes = 64 << 10;
  run_forked(kRanks, [&](int rank) {
    Communicator communicator = place.join(rank, kRanks, "shm");
    const int access = rank == 1 ? PROT_WRITE : PROT_READ | PROT_WRITE;
    auto* const input = static_cast<std::uint8_t*>(
        mmap(nullptr, kBytes, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
    ASSERT_NE(input, MAP_FAILED);
    std::memset(input, 3 + rank, kBytes);
    std::vector<std::uint8_t> output(kRanks * kBytes);
    for (int call = 0; call < 12; ++call) {
      std::fill(output.begin(), output.end(), 0);
      communicator.all_gather(input, output.data(), kBytes, DataType::u8);
      EXPECT_EQ(output.front() + output.back(), 3 + 4);
    }
    munmap(input, kBytes);
    communicator.finalize();
  });
}

TEST(Pulled, WhereOneRankMayNotReadAllStage) {
  if (!can_forbid()) GTEST_SKIP() << "system calls cannot be forbidden here";
  const MeetingPlace place;
  constexpr int kRanks = 3;
  const internal::TemporaryDirectory directory;
  const std::string tuning = directory.write("model.json", kAlwaysPull);
  run_forked(kRanks, [&](int rank) {
    setenv("LOCKSTEP_TUNING", tuning.c_str(), 1);
    EXPECT_TRUE(rank != 1 || forbid_reading());
    Communicator communicator = place.join(rank, kRanks, "shm");
    EXPECT_FALSE(rank == 1 && can_pull(communicator));
    for (const Collective collective : kPulled) {
      for (const std::size_t count : {1, 1001, 200'000})
        run_checked(communicator, {collective, DataType::f32, ReduceOp::sum, kRanks, 1, count, count}, false,
                    "");
    }
    // Who insists is told what is missing.
    const CollectiveCase what{Collective::broadcast, DataType::f32, ReduceOp::sum, kRanks, 0, 1001, 1};
    const Error error = thrown_by([&] { run_checked(communicator, what, false, "pulled/direct"); });
    EXPECT_NE(std::string(error.what()).find("lockstep::allocate()"), std::string::npos) << error.what();
  });
}

}  // namespace
}  // namespace lockstep
