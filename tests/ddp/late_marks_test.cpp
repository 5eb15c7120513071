// Marks that come when wait() has begun: those that were on their way take part, later ones are refused and
// leave the step and the next one alone.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/ddp/inside.hpp"
#include "tests/ddp/numbers.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using testing::on_ranks;
using testing::thrown_by;

constexpr std::size_t kNumbers = 3;
constexpr std::size_t kLate = kNumbers - 1;  // In the first bucket: summed up when the second is begun.

/// Each number has a bucket of its own. When the first has been summed up, the hook calls `in_wait`.
void watch(ReducerOptions& options, const std::function<void()>& in_wait) {
  options.bucket_bytes = options.first_bucket_bytes = 64;
  options.check_first = false;
  options.hook = make_hook("watching", [in_wait](Communicator& c, const GradientBucket& bucket) {
    if (bucket.index == 1) in_wait();
    c.all_reduce(bucket.data, bucket.data, bucket.count, bucket.type, bucket.op());
    return HookResult{};
  });
}

void expect_refused(const Error& error) {
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  const std::string what = error.what();
  EXPECT_NE(what.find("mark_ready(2): \"n2\" came after wait() had been called"), std::string::npos) << what;
  EXPECT_NE(what.find("end every thread that marks before wait()"), std::string::npos) << what;
}

/// A step whose wait() is in the midst of its buckets when rank 1 marks the last number, and a good one.
void mark_late(Communicator& communicator, ReducerOptions options, bool is_found_unused) {
  bool marks_late = communicator.rank() == 1;
  Reducer* reducer = nullptr;
  watch(options, [&] {
    if (std::exchange(marks_late, false)) expect_refused(thrown_by([&] { reducer->mark_ready(kLate); }));
  });
  options.find_unused = is_found_unused;
  Numbers numbers(communicator, kNumbers, options);
  reducer = &numbers.reducer();
  for (std::size_t i = 0; i < kLate; ++i) numbers.mark(i);
  numbers.gradient(kLate) = numbers.mine(kLate);
  if (communicator.rank() == 0) reducer->mark_ready(kLate);
  if (is_found_unused) {
    reducer->wait();
    EXPECT_TRUE(reducer->used(kLate));
    numbers.expect(kLate, 0.5);  // Of rank 0 alone.
    numbers.expect(0, 1.5);
  } else {
    const std::string what = thrown_by([&] { reducer->wait(); }).what();
    EXPECT_NE(what.find("did not mark"), std::string::npos) << what;
  }
  for (std::size_t i = 0; i < kNumbers; ++i) numbers.mark(i);
  reducer->wait();
  for (std::size_t i = 0; i < kNumbers; ++i) numbers.expect(i, 1.5);
}

TEST(LateMarks, OfAStepThatFindsUnusedParametersAreRefused) {
  for (const bool views : {true, false}) {
    for (const bool rebuilds : {true, false}) {
      SCOPED_TRACE(std::string(views ? "views" : "copies") + (rebuilds ? ", rebuilt" : ""));
      on_ranks(2, "auto", [&](Communicator& communicator) {
        ReducerOptions options;
        options.gradients_as_views = views;
        options.rebuild = rebuilds;
        mark_late(communicator, options, true);
      });
    }
  }
}

TEST(LateMarks, OfAStepThatFailsAreRefused) {
  on_ranks(2, "auto", [](Communicator& communicator) { mark_late(communicator, {}, false); });
}

/// A wait() that leaves marks behind has time to show that.
constexpr auto kTimeToFail = std::chrono::milliseconds(50);

/// A page of a gradient: whoever reads it stays there until it is opened.
class ClosedPage {
 public:
  ClosedPage() {
    is_read_ = is_open_ = false;
    struct sigaction action {};
    action.sa_handler = [](int) {
      if (page_ == nullptr) ::abort();
      is_read_ = true;
      while (!is_open_) std::this_thread::yield();
      ::mprotect(page_, bytes(), PROT_READ | PROT_WRITE);
    };
    ::sigaction(SIGSEGV, &action, &before_);
    page_ = ::mmap(nullptr, bytes(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  ~ClosedPage() {
    ::sigaction(SIGSEGV, &before_, nullptr);
    ::munmap(std::exchange(page_, nullptr), bytes());
  }
  ClosedPage(const ClosedPage&) = delete;
  ClosedPage& operator=(const ClosedPage&) = delete;

  static std::size_t bytes() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }
  void* data() const { return page_; }
  void open() { is_open_ = true; }
  void await_reader() const {
    while (!is_read_) std::this_thread::yield();
  }

 private:
  static inline std::atomic<bool> is_read_{false}, is_open_{false};
  static inline void* page_ = nullptr;
  struct sigaction before_ {};
};

/// Its gradient takes part, though a thread still copies it when wait() is called.
TEST(LateMarks, ThatAreUnderWayAreWaitedFor) {
  on_ranks(1, "auto", [](Communicator& communicator) {
    ClosedPage page;
    std::vector<float> values(page.bytes() / sizeof(float));
    const std::vector<Parameter> list{{"slow", DataType::f32, {values.size()}, values.data(), page.data()}};
    Reducer reducer(communicator, list, {.gradients_as_views = false, .find_unused = true});
    std::thread marks([&] { reducer.mark_ready(0); });
    page.await_reader();
    std::thread opens([&] {
      std::this_thread::sleep_for(kTimeToFail);
      page.open();
    });
    reducer.wait();
    EXPECT_TRUE(reducer.used(0));
    marks.join();
    opens.join();
    EXPECT_EQ(reducer.steps(), 1u);
  });
}

/// A thread that has seen that gradients stay on this rank, and stops before it has taken note of its own.
TEST(LateMarks, UnderNoSyncThatAreUnderWayAreWaitedFor) {
  on_ranks(1, "auto", [](Communicator& communicator) {
    ReducerOptions options;
    options.find_unused = true;
    Numbers numbers(communicator, 2, options);
    numbers.mark(1);
    numbers.reducer().wait();
    std::atomic<bool> stopped{false};
    std::thread marks;
    {
      const auto pause = numbers.reducer().no_sync();
      numbers.gradient(0) = numbers.mine(0);
      marks = std::thread([&] {
        inside(numbers.reducer()).step.note_if_paused(0, [&] {
          stopped = true;
          std::this_thread::sleep_for(kTimeToFail);
        });
      });
      while (!stopped) std::this_thread::yield();
    }
    numbers.mark(1);
    numbers.reducer().wait();
    marks.join();
    EXPECT_TRUE(numbers.reducer().used(0));
    numbers.expect(0, 1);
    numbers.mark(1);
    numbers.reducer().wait();
    EXPECT_FALSE(numbers.reducer().used(0));
    numbers.expect(0, 0);
  });
}

/// A thread that has marked the last of a bucket, and stops before it looks for full ones until the next step
/// may begin: a static graph whose first parameters are never marked has full buckets from the start.
TEST(LateMarks, StartNoBucketOfAStepThatHasNotBegun) {
  on_ranks(1, "auto", [](Communicator& communicator) {
    ReducerOptions options{.bucket_bytes = 64, .first_bucket_bytes = 64, .static_graph = true};
    options.rebuild = false;
    options.check_first = false;
    Numbers numbers(communicator, kNumbers, options);
    for (int step = 0; step < 2; ++step) {
      numbers.mark(0);
      numbers.reducer().wait();
      ASSERT_TRUE(inside(numbers.reducer()).plan.tracker.full(0));
      inside(numbers.reducer()).start_full_buckets();
      EXPECT_EQ(inside(numbers.reducer()).started, 0u);
    }
  });
}

/// Threads that each mark a number in every other step, while its wait() begins, goes on or ends.
class LateThreads {
 public:
  LateThreads(Reducer& reducer, std::size_t count, std::size_t rounds)
      : reducer_(reducer),
        rounds_(rounds),
        refused_(count),
        meeting_(static_cast<std::ptrdiff_t>(count + 1)) {
    for (std::size_t i = 0; i < count; ++i) threads_.emplace_back([this, i] { mark_each_round(i); });
  }
  ~LateThreads() {
    for (std::thread& thread : threads_) thread.join();
  }
  /// Before and after the wait() of each round.
  void meet() { meeting_.arrive_and_wait(); }
  bool refused(std::size_t i) const { return refused_[i] != 0; }

 private:
  void mark_each_round(std::size_t i) {
    for (std::size_t round = 0; round < rounds_; ++round) {
      meet();
      for (std::size_t turn = 0; turn < round * i; ++turn) std::this_thread::yield();
      refused_[i] = 0;
      try {
        reducer_.mark_ready(i);
      } catch (const Error&) {
        refused_[i] = 1;
      }
      meet();
    }
  }

  Reducer& reducer_;
  const std::size_t rounds_;
  std::vector<std::uint8_t> refused_;
  std::barrier<> meeting_;
  std::vector<std::thread> threads_;
};

/// In the step, or in the next if they come after wait(), which leaves zeros where it found none.
TEST(LateMarks, CountOnceOrAreRefusedWheneverTheyCome) {
  constexpr std::size_t kThreads = 4, kRounds = 100;
  for (const bool views : {false, true}) {
    on_ranks(1, "auto", [&](Communicator& communicator) {
      ReducerOptions options{.bucket_bytes = 64, .first_bucket_bytes = 64, .find_unused = true};
      options.gradients_as_views = views;
      options.check_first = false;
      Numbers numbers(communicator, kThreads, options);
      Reducer& reducer = numbers.reducer();
      LateThreads threads(reducer, kThreads, kRounds);
      for (std::size_t round = 0; round < kRounds; ++round) {
        for (std::size_t i = 0; i < kThreads; ++i) numbers.gradient(i) = numbers.mine(i);
        threads.meet();
        reducer.wait();
        threads.meet();
        std::vector<int> counted(kThreads);
        for (std::size_t i = 0; i < kThreads; ++i) {
          counted[i] += reducer.used(i);
          numbers.expect(i, reducer.used(i) ? 1 : 0);
        }
        reducer.wait();
        for (std::size_t i = 0; i < kThreads; ++i)
          EXPECT_EQ(counted[i] + reducer.used(i), threads.refused(i) ? 0 : 1) << "round " << round;
      }
    });
  }
}

}  // namespace
}  // namespace lockstep
