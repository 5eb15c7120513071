// Handles that outlive what they were got from.
#include <vector>

#include "tests/engine/local_ranks.hpp"

namespace lockstep {
namespace {

using testing::error_of;

TEST(Lifetimes, AWorkMayOutliveItsCommunicator) {
  for (const char* transport : {"tcp", "shm"}) {
    std::vector<float> in(1000), out(1000);
    auto group = Communicator::local_group(2, transport);
    // Linked, and with a call under way that the peer never makes.
    std::thread peer([&] { group[1].barrier(); });
    group[0].barrier();
    peer.join();
    Work work = group[0].all_reduce_async(in.data(), out.data(), in.size(), DataType::f32, ReduceOp::sum);
    group.clear();
    EXPECT_EQ(error_of([&] { work.wait(); }).first, ErrorCode::aborted) << transport;
    work = Work();
  }
}

}  // namespace
}  // namespace lockstep
