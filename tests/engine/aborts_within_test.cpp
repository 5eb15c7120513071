// An abort from code that the engine calls under its lock, a user's operator or a hook: it tries no lock,
// since to try a std::mutex that the same thread holds is undefined. This program's pthread_mutex_trylock
// stands before the C library's.
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "collectives/call_builder.hpp"
#include "collectives/communicator_core.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/transports.hpp"

namespace lockstep {
namespace {

std::atomic<int> tries{0}, tries_within{0}, aborts_within{0};
thread_local bool is_within = false;

void abort_within(Communicator& comm) {
  is_within = true;
  comm.abort("enough");
  is_within = false;
  ++aborts_within;
}

}  // namespace
}  // namespace lockstep

extern "C" int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  using Function = int (*)(pthread_mutex_t*);
  static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "pthread_mutex_trylock"));
  ++(lockstep::is_within ? lockstep::tries_within : lockstep::tries);
  return next(mutex);
}

namespace lockstep {
namespace {

using testing::error_of;
using testing::on_ranks;

class AbortsWithin : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { tries = tries_within = aborts_within = 0; }
  void TearDown() override {
    EXPECT_GT(tries.load(), 0) << "nobody sees what is tried";
    EXPECT_GT(aborts_within.load(), 0);
    EXPECT_EQ(tries_within.load(), 0);
  }
};
INSTANTIATE_TEST_SUITE_P(Transports, AbortsWithin, ::testing::ValuesIn(testing::transports_here()));

void expect_enough(const std::pair<ErrorCode, std::string>& error) {
  const auto& [code, text] = error;
  EXPECT_EQ(code, ErrorCode::aborted) << text;
  EXPECT_NE(text.find("aborted: enough"), std::string::npos) << text;
}

TEST_P(AbortsWithin, AnOperator) {
  on_ranks(2, GetParam(), [](Communicator& comm) {
    CallOptions options;
    options.user_op.context = &comm;
    options.user_op.combine = [](const void*, void*, std::size_t, void* context) {
      abort_within(*static_cast<Communicator*>(context));
    };
    std::vector<float> values(5000);
    expect_enough(error_of([&] {
      for (;;)
        comm.all_reduce(values.data(), values.data(), values.size(), DataType::f32, ReduceOp::user, options);
    }));
  });
}

TEST_P(AbortsWithin, TheHookOfAnOperation) {
  on_ranks(2, GetParam(), [](Communicator& comm) {
    internal::Engine& engine = comm.core().engine();
    internal::CallBuilder barrier(Collective::barrier, engine, {});
    internal::Operation* const operation = engine.start(barrier.build(), [&](bool) { abort_within(comm); });
    EXPECT_TRUE(engine.wait(*operation));
    engine.release(operation);
    expect_enough(error_of([&] { comm.barrier(); }));
  });
}

}  // namespace
}  // namespace lockstep
