// Processes that fork, and that exit, with what they have of a group.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>

#include "tests/engine/process_group.hpp"
#include "tests/support/transports.hpp"

namespace lockstep {
namespace {

using internal::testing::run_forked;
using internal::testing::Shared;
using internal::testing::wait_for;
using testing::MeetingPlace;

class Processes : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Transports, Processes, ::testing::ValuesIn(lockstep::testing::transports_here()),
                         [](const auto& transport) { return std::string(transport.param); });

/// Whether `call` ends as everything does that is tried in a forked child.
bool refused_in_child(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code() == ErrorCode::not_supported &&
           std::string(error.what()).find("forked") != std::string::npos;
  }
  return false;
}

TEST_P(Processes, UseInAForkedChildIsANamedError) {
  MeetingPlace place;
  run_forked(2, [&](int rank) {
    Communicator comm = place.join(rank, 2, GetParam());
    float x = 1;
    comm.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum);
    const pid_t child = fork();
    if (child == 0) _exit(refused_in_child([&] { comm.barrier(); }) ? 7 : 8);
    EXPECT_EQ(WEXITSTATUS(wait_for(child)), 7);
    comm.all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum);  // The parent goes on.
    EXPECT_EQ(x, 4.0f);
  });
}

TEST(LocalGroup, CannotBeMadeInAForkedChild) {
  run_forked(1, [](int) {
    auto group = Communicator::local_group(2);
    const pid_t child = fork();
    if (child == 0) _exit(refused_in_child([] { Communicator::local_group(2); }) ? 0 : 1);
    EXPECT_EQ(wait_for(child), 0);
  });
}

/// What a rank may have when its process forks, a message under way among it.
struct Handles {
  explicit Handles(Communicator joined)
      : comm(std::move(joined)),
        plan(comm.plan_all_reduce(&x, &x, 1, DataType::f32, ReduceOp::sum)),
        batch(comm.batch()),
        coming(comm.recv_async(&x, 1, DataType::f32, 1 - comm.rank())) {}
  float x = 0;
  Communicator comm;
  Plan plan;
  Batch batch;
  Work coming;
};

TEST_P(Processes, AForkedChildMayDropWhatItGotAndTheGroupGoesOn) {
  MeetingPlace place;
  Shared<std::atomic<int>> dropped;
  run_forked(2, [&](int rank) {
    auto handles = std::make_unique<Handles>(place.join(rank, 2, GetParam()));
    const pid_t child = fork();
    if (child == 0) {
      const bool all = refused_in_child([&] { handles->coming.wait(); }) &&
                       refused_in_child([&] { handles->plan.run(); }) &&
                       refused_in_child([&] { Work work = handles->plan.start(); }) &&
                       refused_in_child([&] { Work work = handles->batch.submit(); }) &&
                       refused_in_child([&] { handles->comm.abort(); });
      const bool dead = !handles->coming.test() && handles->comm.state() == ErrorCode::not_supported;
      handles.reset();
      _exit(all && dead ? 7 : 8);
    }
    EXPECT_EQ(WEXITSTATUS(wait_for(child)), 7);
    dropped->fetch_add(1);
    internal::testing::wait_until([&] { return dropped->load() == 2; });
    Communicator& comm = handles->comm;
    float mine = 1 + static_cast<float>(rank);
    comm.send(&mine, 1, DataType::f32, 1 - rank);
    handles->coming.wait();
    EXPECT_EQ(handles->x, 2 - static_cast<float>(rank));
    comm.all_reduce(&mine, &mine, 1, DataType::f32, ReduceOp::sum);
    EXPECT_EQ(mine, 3.0f);
    comm.finalize();
  });
}

std::optional<Communicator> kept_to_the_end;
Shared<std::atomic<bool>>* exiting = nullptr;

// Its exit handlers run, those of other libraries first, while a peer wants to be linked.
TEST_P(Processes, MayExitWithACommunicatorWhilePeersCome) {
  MeetingPlace place;
  Shared<std::atomic<bool>> ends;
  exiting = &ends;
  run_forked(2, [&](int rank) {
    if (rank == 1) {
      std::atexit([] {
        (*exiting)->store(true);
        internal::sleep_for(std::chrono::milliseconds(300));
      });
      kept_to_the_end = place.join(rank, 2, GetParam());
      std::exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    Communicator comm = place.join(rank, 2, GetParam());
    internal::testing::wait_until([&] { return ends->load(); });
    CallOptions options;
    options.timeout = std::chrono::seconds(5);
    try {
      comm.barrier(options);
      ADD_FAILURE() << "the other rank called nothing";
    } catch (const Error&) {
    }
  });
}

}  // namespace
}  // namespace lockstep
