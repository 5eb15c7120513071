// A rank that leaves while collectives are under way: its buffers are its own again, and its peers hear at
// once.
#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "tests/engine/local_ranks.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/transports.hpp"

namespace lockstep {
namespace {

using internal::testing::wait_until;
using testing::error_of;
using testing::on_ranks;

constexpr std::size_t kCount = 4 << 20;

CallOptions within(std::chrono::seconds limit) {
  CallOptions options;
  options.timeout = limit;
  return options;
}

/// Starts an all_reduce and leaves; nobody waits for it.
void leave_with_a_call(std::unique_ptr<Communicator> comm, const float* in, float* out) {
  static_cast<void>(comm->all_reduce_async(in, out, kCount, DataType::f32, ReduceOp::sum));
}

/// The other rank's call ends because of rank 0, and long before its deadline. In shared memory it hears why;
/// the word may be lost behind a half-sent message that it was too late to take.
void expect_named_error(Communicator& comm, const float* in, float* out) {
  const auto [code, text] = error_of([&] {
    comm.all_reduce(in, out, kCount, DataType::f32, ReduceOp::sum, within(std::chrono::seconds(60)));
  });
  EXPECT_NE(text.find("cause : rank 0"), std::string::npos) << text;
  if (comm.describe().find("transport shm") == std::string::npos && code == ErrorCode::peer_lost) return;
  EXPECT_EQ(code, ErrorCode::aborted) << text;
  EXPECT_NE(text.find("left with all_reduce"), std::string::npos) << text;
}

std::size_t others_than(float value, const float* data) {
  return kCount - static_cast<std::size_t>(std::count(data, data + kCount, value));
}

class Leaving : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, Leaving, ::testing::Values("shm", "tcp"));
class Finalizing : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, Finalizing, ::testing::ValuesIn(lockstep::testing::transports_here()));

TEST_P(Leaving, TakesItsBuffersAlongAndTellsWhoCallsLater) {
  std::vector<float> in(kCount, 1.0f), out[2];
  for (auto& each : out) each.assign(kCount, 0.0f);
  std::atomic<bool> left{false};
  on_ranks(2, GetParam(), [&](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 1) {
      wait_until([&] { return left.load(); });
      return expect_named_error(comm, in.data(), out[1].data());
    }
    leave_with_a_call(std::make_unique<Communicator>(std::move(comm)), in.data(), out[0].data());
    std::fill(out[0].begin(), out[0].end(), 7.0f);
    left = true;
  });
  EXPECT_EQ(others_than(7.0f, out[0].data()), 0u);
}

TEST_P(Leaving, TellsWhoIsInTheCall) {
  std::vector<float> in(kCount, 1.0f), out[3];
  for (auto& each : out) each.assign(kCount, 0.0f);
  on_ranks(3, GetParam(), [&](Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    comm.barrier();
    if (rank == 1) return expect_named_error(comm, in.data(), out[1].data());
    if (rank == 2)
      return wait_until([&] { return comm.state() != ErrorCode::ok; });  // Late until all is over.
    leave_with_a_call(std::make_unique<Communicator>(std::move(comm)), in.data(), out[0].data());
    std::fill(out[0].begin(), out[0].end(), 7.0f);
  });
  EXPECT_EQ(others_than(7.0f, out[0].data()), 0u);
}

// What a peer that left has sent is not lost with a message that it never sent: its end is not the
// communicator's, though that message's deadline comes before all is known.
TEST(LeavingOverTcp, EndsTheMessagesThatNeedIt) {
  on_ranks(2, "tcp", [](Communicator& comm) {
    float x = static_cast<float>(comm.rank());
    comm.broadcast(&x, 1, DataType::f32, 1);  // Connects them before the deadline runs.
    if (comm.rank() == 1) {
      comm.send(&x, 1, DataType::f32, 0);
      comm.broadcast(&x, 1, DataType::f32, 1);
      const Communicator leaving = std::move(comm);
      return;
    }
    comm.recv(&x, 1, DataType::f32, 1);
    CallOptions options;
    options.timeout = std::chrono::milliseconds(900);
    EXPECT_EQ(error_of([&] { comm.recv(&x, 1, DataType::f32, 1, 0, options); }).first, ErrorCode::peer_lost);
    x = 0;
    comm.broadcast(&x, 1, DataType::f32, 1, within(std::chrono::seconds(60)));
    EXPECT_EQ(x, 1.0f);
  });
}

/// Of four ranks, whose barrier does not use the links between each and the third next.
TEST_P(Finalizing, WaitsForCallsThatNobodyHasAHandleOf) {
  constexpr std::size_t kBlock = kCount / 4;
  std::vector<float> in(kCount, 2.0f), out[4];
  for (auto& each : out) each.assign(kCount, 0.0f);
  on_ranks(4, GetParam(), [&](Communicator& comm) {
    float* const mine = out[static_cast<std::size_t>(comm.rank())].data();
    static_cast<void>(comm.all_to_all_async(in.data(), mine, kBlock, DataType::f32));
    comm.finalize();
    EXPECT_EQ(others_than(2.0f, mine), 0u);
  });
}

}  // namespace
}  // namespace lockstep
