// Memory that runs out where the library needs some: one clear error on every rank, and nobody waits.
#include <atomic>
#include <functional>
#include <new>
#include <vector>

#include "collectives/engine/engine.hpp"
#include "lib/base/threads.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/engine/sim_world.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/scarce_memory.hpp"

namespace lockstep {
namespace {

using internal::Channel;
using testing::error_of;
using testing::eventually;
using testing::on_ranks;
using testing::ScarceMemory;

constexpr std::size_t kCount = 1 << 20;
constexpr std::size_t kMuch = kCount * sizeof(float) / 4;

using Sum = std::function<void(Communicator&, const float* in, float* out)>;

/// Both ranks make `call`, for which rank 0 has no memory.
void expect_error_on_both(const char* transport, const Sum& call) {
  std::vector<float> in(kCount, 1.0f), out[2];
  for (auto& each : out) each.assign(kCount, 0.0f);
  on_ranks(2, transport, [&](Communicator& comm) {
    comm.barrier();
    const auto rank = static_cast<std::size_t>(comm.rank());
    const auto [code, text] = error_of([&] {
      const ScarceMemory scarce(rank == 0 ? kMuch : SIZE_MAX);
      call(comm, in.data(), out[rank].data());
    });
    EXPECT_EQ(code, ErrorCode::out_of_memory) << text;
    EXPECT_NE(text.find("memory ran out"), std::string::npos) << text;
    EXPECT_EQ(comm.state(), ErrorCode::out_of_memory);
  });
}

CallOptions by(std::string_view algorithm) {
  CallOptions options;
  options.timeout = std::chrono::seconds(60);
  options.algorithm = algorithm;
  return options;
}

TEST(OutOfMemory, ForScaledInput) {
  for (const char* transport : {"shm", "tcp"}) {
    expect_error_on_both(transport, [](Communicator& comm, const float* in, float* out) {
      comm.reduce_scatter(in, out, kCount / 2, DataType::f32, ReduceOp::premul_sum, by(""));
    });
  }
}

TEST(OutOfMemory, ForScratch) {
  expect_error_on_both("tcp", [](Communicator& comm, const float* in, float* out) {
    comm.all_reduce(in, out, kCount, DataType::f32, ReduceOp::sum, by("recursive_doubling"));
  });
}

/// A repeated call in shared memory, in an operation of the pool that was only used for messages yet.
TEST(OutOfMemory, OfARepeatedCallForAMoment) {
  on_ranks(2, "shm", [&](Communicator& comm) {
    std::vector<float> data(4096, 1.0f);
    const auto sum = [&] {
      comm.all_reduce(data.data(), data.data(), data.size(), DataType::f32, ReduceOp::sum, by(""));
    };
    sum();
    float x = 0;
    Work keeps_an_operation = comm.recv_async(&x, 1, DataType::f32, 1 - comm.rank(), 1);
    comm.send_async(&x, 1, DataType::f32, 1 - comm.rank(), 2).wait();
    comm.recv(&x, 1, DataType::f32, 1 - comm.rank(), 2);
    try {
      const ScarceMemory scarce(1, comm.rank() == 0 ? 1 : 0);
      sum();
      EXPECT_EQ(scarce.refused(), comm.rank() == 0 ? 1 : 0) << "the test did not reach what it is for";
    } catch (const Error& error) {  // Of both, where the moment came after the attempts in place.
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
      return;
    }
    EXPECT_EQ(data.front(), 4.0f);
    comm.send(&x, 1, DataType::f32, 1 - comm.rank(), 1);
    keeps_an_operation.wait();
  });
}

/// One that fits a flag's line: peers must not have heard of it before there is what it needs if they are
/// late.
TEST(OutOfMemory, OfARepeatedSmallCallChangesNothing) {
  std::atomic<bool> threw{false};
  on_ranks(2, "shm", [&](Communicator& comm) {
    float sum = 1, x = 0;
    const auto add = [&] { comm.all_reduce(&sum, &sum, 1, DataType::f32, ReduceOp::sum, by("")); };
    for (int i = 0; i < 3; ++i) add();
    std::vector<Work> keep_operations;
    for (int i = 0; i < 8; ++i)
      keep_operations.push_back(comm.recv_async(&x, 1, DataType::f32, 1 - comm.rank(), i));
    if (comm.rank() == 0) {
      const ScarceMemory scarce(1, 1);
      EXPECT_THROW(add(), std::bad_alloc);
      threw = true;
    } else {
      EXPECT_TRUE(eventually([&] { return threw.load(); }));
    }
    add();
    EXPECT_EQ(sum, 16.0f);
    for (int i = 0; i < 8; ++i) comm.send(&x, 1, DataType::f32, 1 - comm.rank(), i);
    for (Work& work : keep_operations) work.wait();
  });
}

/// One that nobody receives yet must be kept whole. One that is awaited needs nothing.
TEST(OutOfMemory, ForAMessageToItself) {
  on_ranks(2, "shm", [&](Communicator& comm) {
    std::vector<float> from(kCount, 1.0f), to(kCount);
    const auto send = [&] {
      const ScarceMemory scarce(kMuch);
      comm.send(from.data(), kCount, DataType::f32, comm.rank(), 1);
    };
    comm.barrier();
    Work receive = comm.recv_async(to.data(), kCount, DataType::f32, comm.rank(), 1);
    send();
    receive.wait();
    EXPECT_EQ(to, from);
    comm.barrier();
    const auto [code, text] = error_of([&] {
      if (comm.rank() == 0) send();
      comm.barrier();
    });
    EXPECT_EQ(code, ErrorCode::out_of_memory) << text;
    EXPECT_NE(text.find("memory ran out"), std::string::npos) << text;
  });
}

TEST(OutOfMemory, IsNoneInAnAbortWithALongMessageUnderWay) {
  using namespace internal;
  SimWorldOptions options;
  options.network.links.in_flight = 64 << 10;
  SimWorld world(options);
  constexpr std::size_t kBytes = 4 << 20;
  world.add(0, SimMessage{true, 1, 0, kBytes});
  world.add(1, SimMessage{false, 0, 0, kBytes});
  const auto sent = [&] {
    const Link* link = world.engine(0).transport()->existing_link(1, Channel::point_to_point);
    return link == nullptr ? 0 : link->bytes_sent();
  };
  Nanos until = 0;
  while (sent() < kBytes / 4) ASSERT_FALSE(world.run(until += kVirtualMillisecond / 10));
  ASSERT_LT(sent(), kBytes / 2);
  const ScarceMemory scarce(kBytes / 4);
  world.engine(0).request_revoke(Status(ErrorCode::aborted, "enough"));
  EXPECT_EQ(scarce.refused(), 0);
  EXPECT_EQ(world.engine(0).state(), ErrorCode::aborted);
}

// By some while they set it up themselves, by others at their first call.
TEST(OutOfMemory, WhileAGroupIsSetUpIsHeardOfByAll) {
  for (const char* transport : {"shm", "tcp"}) {
    internal::on_threads(3, [&](std::size_t rank) {
      InitOptions options;
      options.rank = static_cast<int>(rank);
      options.world_size = 3;
      options.rendezvous = std::string("memory://without-memory-") + transport;
      options.transports = transport;
      const auto [code, text] = error_of([&] {
        const ScarceMemory scarce(rank == 1 ? sizeof(internal::Engine) : SIZE_MAX);
        Communicator::create(options).barrier();
      });
      EXPECT_EQ(code, rank == 1 ? ErrorCode::out_of_memory : ErrorCode::peer_lost) << text;
      const char* const cause = rank == 1 ? "memory ran out while the group was set up" : "rank 1 ";
      EXPECT_NE(text.find(cause), std::string::npos) << text;
    });
  }
}

}  // namespace
}  // namespace lockstep
