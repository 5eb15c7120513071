// The progress thread finds no memory at one moment or another: the process lives, and what nobody waits for
// ends.
#include <algorithm>
#include <optional>
#include <vector>

#include "collectives/engine/operation.hpp"
#include "lib/net/reactor.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/scarce_memory.hpp"

namespace lockstep {
namespace {

using internal::Reactor;
using testing::eventually;
using testing::kPatience;
using testing::ScarceMemory;

constexpr std::size_t kCount = 100'000;

/// While it lives, the progress thread finds none, `times` times, once it has had `allowed` pieces.
class ScarceOnReactor {
 public:
  ScarceOnReactor(int times, int allowed) {
    Reactor::instance().run_there([&] { scarce_.emplace(1, times, allowed); });
  }
  ~ScarceOnReactor() {
    Reactor::instance().run_there([&] { scarce_.reset(); });
  }
  int refused() const {
    int refused = 0;
    Reactor::instance().run_there([&] { refused = scarce_->refused(); });
    return refused;
  }

 private:
  std::optional<ScarceMemory> scarce_;
};

class ReactorWithoutMemory : public ::testing::TestWithParam<const char*> {
 protected:
  /// Where a call failed the group is given up: without memory its rank may not have told the other.
  static bool all_ended(const std::vector<Work>& works, std::vector<Communicator>& group) {
    const auto ended = [](const Work& work) { return work.operation()->done.load(); };
    const auto failed = [&](const Work& work) { return ended(work) && work.error() != ErrorCode::ok; };
    if (std::any_of(works.begin(), works.end(), failed)) group.clear();
    return std::all_of(works.begin(), works.end(), ended);
  }

  /// Two ranks' first calls, which the progress thread moves alone. Whether memory was refused in them.
  static bool calls_end(int times, int allowed) {
    auto group = Communicator::local_group(2, GetParam());
    std::vector<float> data[2], message(kCount, 3.0f), received(kCount);
    std::vector<Work> works;
    const ScarceOnReactor scarce(times, allowed);
    for (Communicator& comm : group) {
      auto& own = data[comm.rank()];
      own.assign(kCount, 1.0f);
      works.push_back(comm.all_reduce_async(own.data(), own.data(), kCount, DataType::f32, ReduceOp::sum));
    }
    works.push_back(group[0].recv_async(received.data(), kCount, DataType::f32, 1, 0));
    works.push_back(group[1].send_async(message.data(), kCount, DataType::f32, 0, 0));
    EXPECT_TRUE(eventually([&] { return all_ended(works, group); })) << "something waits for ever";
    if (HasFailure()) return false;
    EXPECT_TRUE(works[0].error() != ErrorCode::ok || data[0] == std::vector<float>(kCount, 2.0f));
    EXPECT_TRUE(works[2].error() != ErrorCode::ok || received == message);
    return scarce.refused() > 0;
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, ReactorWithoutMemory, ::testing::Values("shm", "tcp"));

TEST_P(ReactorWithoutMemory, WhatNobodyWaitsForEnds) {
  for (const int times : {1, 4}) {
    int allowed = 0;
    while (!HasFailure() && calls_end(times, allowed)) ++allowed;
    EXPECT_GT(allowed, 0) << "the test did not reach what it is for";
    if (HasFailure()) FAIL() << "without the allocation that comes after " << allowed << " others";
  }
}

}  // namespace
}  // namespace lockstep
