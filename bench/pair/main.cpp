// pair-bench: one message between two processes, through Communicator::send and recv: there and back, or one
// after another. tools/compare-ucx runs it beside ucx_perftest.
#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <new>
#include <optional>
#include <queue>
#include <vector>

#include "bench/buffer.hpp"
#include "bench/launch.hpp"
#include "bench/pair/options.hpp"

namespace lockstep::bench {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// What is sent. Memory that was never written reads as one page of zeros, which stays in a core's cache.
class Source {
 public:
  explicit Source(const PairOptions& options) : bytes_(options.bytes + 1) {
    if (options.unwritten) {
      memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory_ == MAP_FAILED) throw std::bad_alloc();
    } else {
      written_.emplace(options.bytes, options.registered);
    }
  }
  ~Source() {
    if (memory_ != nullptr) munmap(memory_, bytes_);
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  const void* data() const { return memory_ != nullptr ? memory_ : written_->data(); }

 private:
  std::size_t bytes_;
  void* memory_ = nullptr;
  std::optional<Buffer> written_;
};

/// There and back: half of the time, in microseconds, as the first rank sees it.
class PingPong {
 public:
  static constexpr double kMessages = 2;  // In the time that once() takes.

  PingPong(Communicator& communicator, const PairOptions& options)
      : communicator_(communicator),
        options_(options),
        there_(options),
        back_(options.bytes, options.registered) {}

  double once() {
    const auto start = Clock::now();
    if (communicator_.rank() == 0) send();
    communicator_.recv(back_.data(), options_.bytes, DataType::u8, 1 - communicator_.rank(), 0);
    if (communicator_.rank() == 1) send();
    return microseconds_since(start) / kMessages;
  }
  void finish() {}

 private:
  void send() {
    communicator_.send(there_.data(), options_.bytes, DataType::u8, 1 - communicator_.rank(), 0);
  }

  Communicator& communicator_;
  const PairOptions& options_;
  const Source there_;
  const Buffer back_;
};

/// From the first rank to the second, `window` of them under way: the time of each, in microseconds.
class Stream {
 public:
  static constexpr double kMessages = 1;

  Stream(Communicator& communicator, const PairOptions& options)
      : communicator_(communicator),
        options_(options),
        source_(options),
        memory_(options.bytes, options.registered) {}

  double once() {
    const auto start = Clock::now();
    if (under_way_.size() == static_cast<std::size_t>(options_.window)) await_oldest();
    under_way_.push(communicator_.rank() == 0
                        ? communicator_.send_async(source_.data(), options_.bytes, DataType::u8, 1)
                        : communicator_.recv_async(memory_.data(), options_.bytes, DataType::u8, 0));
    return microseconds_since(start);
  }
  void finish() {
    while (!under_way_.empty()) await_oldest();
  }

 private:
  void await_oldest() {
    under_way_.front().wait();
    under_way_.pop();
  }

  Communicator& communicator_;
  const PairOptions& options_;
  const Source source_;
  const Buffer memory_;
  std::queue<Work> under_way_;
};

/// What tells of the message: ucx_perftest gives the median of those there and back, and the
/// mean of a stream, in which a message takes the time of another.
struct Summary {
  double median, mean;
};

template <class Test>
Summary measure(Test& test, const PairOptions& options) {
  for (int i = 0; i < options.warmup; ++i) test.once();
  test.finish();
  std::vector<double> times(static_cast<std::size_t>(options.iterations));
  const auto start = Clock::now();
  for (double& time : times) time = test.once();
  test.finish();
  const double mean = microseconds_since(start) / options.iterations / Test::kMessages;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return {*middle, mean};
}

int take_part(Communicator& communicator, const PairOptions& options) {
  Summary summary{};
  if (options.stream) {
    Stream stream(communicator, options);
    summary = measure(stream, options);
  } else {
    PingPong there_and_back(communicator, options);
    summary = measure(there_and_back, options);
  }
  if (communicator.rank() == 0) std::printf("median %.2f us, mean %.2f us\n", summary.median, summary.mean);
  std::fflush(stdout);
  return 0;
}

/// Rank 0 to the first core that this process may use, rank 1 to the last.
void pin(int rank) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  int core = rank == 0 ? 0 : CPU_SETSIZE - 1;
  while (!CPU_ISSET(core, &allowed)) core += rank == 0 ? 1 : -1;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  sched_setaffinity(0, sizeof one, &one);
}

int run(int argc, char** argv) {
  PairOptions options;
  if (const auto status = parse_options(argc, argv, options)) return *status;
  return launch_processes(
      {2, options.transport, {}, options.pinned ? std::function<void(int)>(pin) : nullptr},
      [&](Communicator& communicator, Board&) { return take_part(communicator, options); });
}

}  // namespace
}  // namespace lockstep::bench

int main(int argc, char** argv) {
  try {
    return lockstep::bench::run(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "pair-bench: " << error.what() << '\n';
    return 1;
  }
}
