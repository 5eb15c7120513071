// A million mark_ready calls from eight threads a rank, in random order: none is lost, no bucket either. One
// that comes too late. And what one costs.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <iostream>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/ddp.hpp"
#include "tests/ddp/thrown_by.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/bounds.hpp"

namespace lockstep {
namespace {

constexpr std::size_t kThreads = 8;

/// `count` scalars.
class Scalars {
 public:
  explicit Scalars(std::size_t count) : values_(count) {
    for (std::size_t i = 0; i < count; ++i)
      list_.push_back({"s" + std::to_string(i), DataType::f32, {}, &values_[i], nullptr});
  }
  const std::vector<Parameter>& list() const { return list_; }

 private:
  std::vector<float> values_;
  std::vector<Parameter> list_;
};

float value_of(int rank, std::size_t step, std::size_t i) {
  return static_cast<float>((i * 3 + step + static_cast<std::size_t>(rank)) % 64);
}

TEST(Marks, AMillionOfThemFromEightThreadsLoseNothing) {
  constexpr int kRanks = 2;
  constexpr std::size_t kScalars = 4000, kSteps = 125;
  static_assert(kRanks * kScalars * kSteps == 1'000'000);
  testing::on_ranks(kRanks, "auto", [](Communicator& communicator) {
    const Scalars scalars(kScalars);
    Reducer reducer(communicator, scalars.list(),
                    {.bucket_bytes = 4'096, .first_bucket_bytes = 1'024, .check_first = false});
    const int rank = communicator.rank();
    std::vector<std::size_t> order(kScalars);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::mt19937 random(static_cast<unsigned>(rank));

    std::barrier meeting(kThreads + 1);  // Before and after each backward.
    const auto mark_share = [&](std::size_t thread) {
      for (std::size_t step = 0; step < kSteps; ++step) {
        meeting.arrive_and_wait();
        for (std::size_t k = thread; k < kScalars; k += kThreads) {
          *static_cast<float*>(reducer.gradient(order[k])) = value_of(rank, step, order[k]);
          reducer.mark_ready(order[k]);
        }
        meeting.arrive_and_wait();
      }
    };
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) threads.emplace_back(mark_share, t);
    for (std::size_t step = 0; step < kSteps; ++step) {
      std::shuffle(order.begin(), order.end(), random);
      meeting.arrive_and_wait();
      meeting.arrive_and_wait();
      reducer.wait();
      for (std::size_t i = 0; i < kScalars; ++i) {
        const float expected = (value_of(0, step, i) + value_of(1, step, i)) / 2;
        EXPECT_EQ(*static_cast<float*>(reducer.gradient(i)), expected) << "step " << step << ", scalar " << i;
      }
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(reducer.statistics().step, std::uint64_t{kSteps});
  });
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

/// A thread that marks too late is in the midst of that when wait() has its error. Joined, it leaves nothing
/// behind that the next step would wait for.
TEST(Marks, ThatComeWhileTheStepIsJudgedAreOverBeforeTheNext) {
  testing::on_ranks(1, "auto", [](Communicator& communicator) {
    ClosedPage page;
    std::vector<float> values(page.bytes() / sizeof(float)), small(8), gradient(8, 1.0f);
    const std::vector<Parameter> list{{"early", DataType::f32, {small.size()}, small.data(), gradient.data()},
                                      {"late", DataType::f32, {values.size()}, values.data(), page.data()}};
    std::atomic<bool> is_waiting{false};
    // The bucket of "early" is the second: it starts when wait() has seen which marks there are.
    const auto hook = make_hook("watching", [&](Communicator&, const GradientBucket& bucket) {
      if (bucket.index == 1 && !is_waiting.exchange(true)) page.await_reader();
      return HookResult{};
    });
    Reducer reducer(communicator, list,
                    {.bucket_bytes = page.bytes(),
                     .first_bucket_bytes = page.bytes(),
                     .gradients_as_views = false,
                     .check_first = false,
                     .hook = hook});
    std::thread late([&] {
      while (!is_waiting) std::this_thread::yield();
      reducer.mark_ready(1);
    });
    std::thread opens([&] {
      page.await_reader();
      std::this_thread::sleep_for(kTimeToFail);
      page.open();
    });
    reducer.mark_ready(0);
    EXPECT_NE(std::string(testing::thrown_by([&] { reducer.wait(); }).what()).find("did not mark"),
              std::string::npos);
    late.join();
    opens.join();
    reducer.mark_ready(0);
    reducer.mark_ready(1);
    reducer.wait();
    EXPECT_EQ(reducer.steps(), 1u);
  });
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // These cost several times as much.
/// Of a mark that does not complete a bucket; the collective that the last one starts is work of its own.
TEST(Marks, CostLessThanTwoHundredNanoseconds) {
  using Clock = std::chrono::steady_clock;
  testing::on_ranks(1, "auto", [](Communicator& communicator) {
    constexpr std::size_t kScalars = 20'000;
    const Scalars scalars(kScalars);
    Reducer reducer(communicator, scalars.list());
    std::vector<std::size_t> order(kScalars);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), std::mt19937(1));
    auto best = Clock::duration::max();
    for (int step = 0; step < 20; ++step) {
      const auto start = Clock::now();
      for (const std::size_t i : order) reducer.mark_ready(i);
      best = std::min(best, Clock::now() - start);
      reducer.wait();
    }
    const auto each = std::chrono::duration_cast<std::chrono::nanoseconds>(best) / kScalars;
    std::cout << "mark_ready: " << each.count() << " ns\n";
    EXPECT_LT(each, testing::allowed(std::chrono::nanoseconds(200)));
  });
}
#endif

}  // namespace
}  // namespace lockstep
