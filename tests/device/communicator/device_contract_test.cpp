// What the public header promises beyond right results: calls return before completion, order over streams,
// data that never pass through the host, registered memory that is touched once, nothing that grows.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>

#include "tests/device/communicator/device_world.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/device_backend.hpp"
#include "tests/support/must.hpp"
#include "tests/support/test_run.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using internal::CallBuffers;
using internal::CollectiveCase;
using internal::DeviceArena;
using internal::MemorySpace;
using internal::testing::Enqueued;
using internal::testing::must;
using testing::backend;
using testing::DeviceRank;
using testing::thrown_by;

const testing::DeviceRun kRun(testing::test_run("stream_sync"));
const char* const kMode = kRun.mode.c_str();

/// Of threads the kernels of one may wait on the GPU for another's, and an allocation for them: buffers come
/// before a barrier, calls after it.
template <class Body>
void run_ranks(int world, const Body& body) {
  kRun.in_threads ? testing::run_on_devices_as_threads(world, kMode, body)
                  : testing::run_on_devices(world, kMode, body);
}

TEST(DeviceContract, ACallReturnsBeforeItsStreamIsThere) {
  run_ranks(2, [](DeviceRank& self) {
    DeviceArena arena(4096, self.device());
    auto* const gate = static_cast<std::uint32_t*>(must(backend().allocate_pinned(4)));
    self.host.barrier();
    must(backend().wait_value(gate, 1, self.stream));  // Nothing in the stream can run yet.
    for (int i = 0; i < 20; ++i)
      self.communicator.all_reduce(arena.device(), arena.device(), 100, DataType::f32, ReduceOp::sum,
                                   self.stream);
    EXPECT_FALSE(must(backend().idle(self.stream)));
    std::atomic_ref(*gate).store(1);
    self.synchronize();
    must(backend().free_pinned(gate));
  });
}

bool refused(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code() == ErrorCode::not_supported;
  }
  return false;
}

TEST(DeviceContract, AForkedChildMayDropItsHandleAndTheGroupGoesOn) {
  if (kRun.in_threads) GTEST_SKIP() << "a process of many threads does not fork";
  run_ranks(2, [](DeviceRank& self) {
    const pid_t child = fork();
    if (child == 0) {
      alarm(internal::testing::child_seconds());
      bool good = false;
      {
        DeviceCommunicator inherited(std::move(self.communicator));
        good = refused([&] { inherited.barrier(self.stream); }) && refused([&] { inherited.wait(); }) &&
               refused([&] { inherited.send(nullptr, 0, DataType::u8, 0, self.stream); }) &&
               refused([&] { inherited.abort(); }) && refused([&] { inherited.finalize(); }) &&
               inherited.state() == ErrorCode::not_supported;
      }
      _exit(good ? 7 : 8);
    }
    EXPECT_EQ(WEXITSTATUS(internal::testing::wait_for(child)), 7);
    DeviceArena arena(4096, self.device());
    if (self.rank() == 1) internal::sleep_for(std::chrono::milliseconds(300));  // Rank 0 looks after it.
    self.communicator.all_reduce(arena.device(), arena.device(), 100, DataType::f32, ReduceOp::sum,
                                 self.stream);
    self.communicator.wait();
    self.synchronize();
    EXPECT_EQ(self.communicator.state(), ErrorCode::ok) << self.communicator.error_text();
    self.communicator.finalize();
  });
}

/// Rank 0 has registered what it names and rank 1 has not, and rank 1 makes its call only when it has heard
/// that rank 0's has returned: no call may ask what its peers name, nor assume what they named before.
TEST(DeviceContract, RegisteredMemoryAsksNoPeerAndAssumesNothing) {
  constexpr std::size_t kCount = 300'000;
  internal::testing::Shared<std::atomic<int>> returned;
  run_ranks(2, [&](DeviceRank& self) {
    DeviceArena first(kCount * 4, self.device()), other(kCount * 4, self.device());
    self.communicator.register_buffer(first.device(), first.size());
    self.host.barrier();
    for (int call = 1; call <= 4; ++call) {
      DeviceArena& arena = self.rank() == 1 && call > 2 ? other : first;  // After two calls that were alike.
      auto* const data = reinterpret_cast<std::int32_t*>(arena.device());
      auto* const values = reinterpret_cast<std::int32_t*>(arena.host().data());
      std::fill_n(values, kCount, 10 * call + self.rank());
      arena.upload(arena.size(), self.stream);
      if (self.rank() == 1) internal::testing::wait_until([&] { return returned->load() == call; });
      self.communicator.all_reduce(data, data, kCount, DataType::i32, ReduceOp::sum, self.stream);
      if (self.rank() == 0) returned->store(call);
      arena.download(arena.size(), self.stream);
      self.synchronize();
      EXPECT_EQ(std::count(values, values + kCount, 20 * call + 1), static_cast<std::ptrdiff_t>(kCount))
          << "call " << call;
    }
  });
}

TEST(DeviceContract, OnlyWhatWasAllocatedIsFreed) {
  run_ranks(1, [](DeviceRank&) {
    auto* const memory = static_cast<std::byte*>(allocate_device(4096, 0));
    int on_host = 0;
    for (void* const wrong : {static_cast<void*>(memory + 64), static_cast<void*>(&on_host)}) {
      const Error error = thrown_by([&] { free_device(wrong); });
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    }
    free_device(memory);
    free_device(nullptr);
  });
}

TEST(DeviceContract, OperationsRunInTheOrderOfCallsOverStreams) {
  run_ranks(2, [](DeviceRank& self) {
    internal::TestStream other(self.device());
    DeviceArena arena(4096, self.device());
    auto* const values = reinterpret_cast<std::int32_t*>(arena.host().data());
    values[0] = 1;
    arena.upload(4, self.stream);
    self.stream.synchronize();
    self.host.barrier();
    for (int i = 0; i < 20; ++i)  // Each doubles the value, on the one stream or the other.
      self.communicator.all_reduce(arena.device(), arena.device(), 1, DataType::i32, ReduceOp::sum,
                                   i % 2 == 0 ? Stream(self.stream) : Stream(other));
    arena.download(4, other);
    other.synchronize();
    EXPECT_EQ(values[0], 1 << 20);
  });
}

/// It is written by what the stream does before, and of the host's nothing counts.
TEST(DeviceContract, AFactorOnTheDeviceIsThatOfTheStream) {
  run_ranks(2, [](DeviceRank& self) {
    constexpr std::size_t kMost = 200'000;  // Small calls go another way than large ones.
    DeviceArena numbers(kMost * sizeof(float), self.device()), factor(sizeof(float), self.device());
    auto* const values = reinterpret_cast<float*>(numbers.host().data());
    *reinterpret_cast<float*>(factor.host().data()) = static_cast<float>(self.rank() + 2);
    factor.upload(sizeof(float), self.stream);
    DeviceCallOptions options;
    options.device_scale = factor.device();
    options.scale = 100;
    for (const std::size_t count : {std::size_t{7}, std::size_t{3'000}, kMost}) {
      std::fill_n(values, kMost, 3.0f);
      numbers.upload(numbers.size(), self.stream);
      self.communicator.all_reduce(numbers.device(), numbers.device(), count, DataType::f32,
                                   ReduceOp::premul_sum, self.stream, options);
      numbers.download(numbers.size(), self.stream);
      self.synchronize();
      EXPECT_EQ(std::count(values, values + count, 15.0f), static_cast<std::ptrdiff_t>(count));
    }
  });
}

/// Every pointer that the communicator's operations moved data from or to is device memory.
void expect_on_device(DeviceRank& self, const std::vector<Enqueued>& list) {
  for (const Enqueued& one : list) {
    if (one.what != "copy" && one.what != "reduce") continue;
    std::vector<const void*> places = one.sources;
    places.insert(places.end(), one.destinations.begin(), one.destinations.end());
    for (const void* place : places)
      EXPECT_EQ(must(self.recorder.locate(place)).space, MemorySpace::device) << one.what;
  }
}

TEST(DeviceContract, NoByteOfDataPassesThroughTheHost) {
  if (kRun.in_threads) GTEST_SKIP() << "nothing is recorded";
  run_ranks(3, [](DeviceRank& self) {
    constexpr std::size_t kBytes = 1 << 20;
    DeviceArena arena(kBytes, self.device());
    static_cast<void>(self.recorder.take());
    std::size_t enqueued = 0;
    for (int c = 0; c < kCollectiveCount; ++c) {
      const CollectiveCase what{static_cast<Collective>(c), DataType::f32, ReduceOp::sum, 3, 1, 5'001, 7};
      const CallBuffers buffers(what, self.rank(), false, arena.host());
      start_on_device(self.communicator, what, buffers, arena, self.stream);
    }
    self.communicator.broadcast(arena.device(), arena.device() + kBytes / 2, 1000, DataType::u8, 0,
                                self.stream);
    self.synchronize();
    const auto list = self.recorder.take();
    expect_on_device(self, list);
    for (const Enqueued& one : list)
      enqueued += std::set<std::string>{"copy", "reduce", "packets", "messages"}.count(one.what);
    EXPECT_GT(enqueued, 10u);
  });
}

TEST(DeviceContract, ARegisteredAllReduceTouchesEachByteOnce) {
  if (std::string_view(kMode) != "host_sync") GTEST_SKIP() << "host_sync only";
  const bool take_turns = testing::take_time_slices(2);
  run_ranks(2, [=](DeviceRank& self) {
    constexpr std::size_t kCount = 100'000;
    DeviceArena arena(kCount * 4, self.device());
    self.communicator.register_buffer(arena.device(), arena.size());
    self.host.barrier();
    EXPECT_TRUE(self.communicator.is_registered(arena.device() + 4, 100));
    static_cast<void>(self.recorder.take());
    self.communicator.all_reduce(arena.device(), arena.device(), kCount, DataType::f32, ReduceOp::sum,
                                 self.stream);
    self.synchronize();
    testing::expect_one_reduction(self, kCount * 4, take_turns);
    self.communicator.deregister(arena.device());
    EXPECT_FALSE(self.communicator.is_registered(arena.device(), 1));
  });
}

TEST(DeviceContract, AStreamRunsTheProgramItself) {
  if (kRun.in_threads) GTEST_SKIP() << "nothing is recorded";
  if (std::string_view(kMode) != "stream_sync") GTEST_SKIP() << "stream_sync only";
  run_ranks(2, [](DeviceRank& self) {
    DeviceArena arena(4096, self.device());
    static_cast<void>(self.recorder.take());
    self.communicator.all_reduce(arena.device(), arena.device(), 100, DataType::f32, ReduceOp::sum,
                                 self.stream);
    const auto list = self.recorder.take();
    std::vector<std::string> what;
    for (const Enqueued& one : list) {
      EXPECT_EQ(one.stream, Stream(self.stream)) << one.what;
      what.push_back(one.what);
    }
    // one_shot: copy in, tell the other, wait for it, reduce both; around it the events of its begin and end.
    const std::vector<std::string> expected{"record", "copy", "write", "wait", "reduce", "record", "record"};
    EXPECT_EQ(what, expected);
    self.synchronize();
  });
}

TEST(DeviceContract, RanksMayBeThreadsOfOneProcess) {
  testing::use_host_backend(kMode);
  internal::testing::run_forked(1, [](int) {
    testing::on_ranks(3, "auto", [](Communicator& host) {
      const int rank = host.rank();
      const int device = testing::device_of(rank);
      must(backend().select(device));
      DeviceCommunicator communicator(host, device);
      internal::TestStream stream(device);
      DeviceArena arena(1 << 18, device);
      if (rank != 1) communicator.register_buffer(arena.device(), arena.size());
      host.barrier();
      for (const std::size_t count : {std::size_t{3}, std::size_t{20'001}}) {
        for (const Collective collective :
             {Collective::all_reduce, Collective::all_gather_v, Collective::all_to_all_v}) {
          const CollectiveCase what{collective, DataType::i32, ReduceOp::sum, 3, 0, count / 3, count};
          const CallBuffers buffers(what, rank, false, arena.host());
          arena.upload(arena.size(), stream);
          start_on_device(communicator, what, buffers, arena, stream);
          arena.download(arena.size(), stream);
          communicator.wait();
          stream.synchronize();
          EXPECT_EQ(buffers.check_result(), "") << what.describe();
        }
      }
      communicator.finalize();
    });
  });
}

}  // namespace
}  // namespace lockstep
