#include "bench/peers/turn.hpp"

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

#include "bench/now.hpp"
#include "bench/peers/data.hpp"

namespace peers {
namespace {

constexpr double kLongestWarmUp = 300'000;  // us
constexpr int kBatches = 100;
constexpr double kOverrun = 10;  // times the budget

using lockstep::bench::now_us;

// The memory of one call, and the call bound to it.
class BufferSet {
 public:
  BufferSet(Contender& contender, const Call& call) : contender_(contender), call_(call) {
    input_ = make(call.input_count());
    output_ = call.in_place() ? input_ : make(call.output_count());
    run = contender.bind(call, input_, output_);
  }
  ~BufferSet() {
    run = nullptr;
    if (output_ != input_) contender_.release(call_, output_);
    contender_.release(call_, input_);
  }
  BufferSet(const BufferSet&) = delete;
  BufferSet& operator=(const BufferSet&) = delete;

  void* input() const { return input_; }
  void* output() const { return output_; }
  void clear() {
    std::memset(input_, 0, bytes_of(call_.input_count()));
    std::memset(output_, 0, bytes_of(call_.output_count()));
  }

  std::function<void()> run;

 private:
  std::size_t bytes_of(std::size_t count) const { return count * size_of(call_.kind.element); }
  void* make(std::size_t count) {
    const std::size_t bytes = bytes_of(std::max<std::size_t>(count, 1));
    void* memory = contender_.allocate(call_, bytes);
    if (memory == nullptr) throw std::bad_alloc();
    std::memset(memory, 0, bytes);
    return memory;
  }

  Contender& contender_;
  const Call& call_;
  void* input_;
  void* output_;
};

class Turn {
 public:
  Turn(Contender& contender, Board& board, const Call& call)
      : board_(board), call_(call), sets_{{contender, call}, {contender, call}} {}

  double wrong(int set, unsigned salt) {
    fill(call_, sets_[set].input(), salt);
    board_.barrier();
    sets_[set].run();
    return board_.sum(static_cast<double>(count_wrong(call_, sets_[set].output(), salt)));
  }

  // The fastest of a few untimed runs; fewer when they take long.
  double warm_up(int runs) {
    for (BufferSet& set : sets_) set.clear();
    double fastest = board_.max(once(0)), total = fastest;
    for (int i = 1; i < runs && total < kLongestWarmUp; ++i) {
      const double time = board_.max(once(i));
      fastest = std::min(fastest, time);
      total += time;
    }
    return std::max(fastest, 0.01);
  }

  // Gives the number of iterations that were timed. On a machine that others keep busy an iteration may come
  // to take a thousand times what was estimated: the ranks look at the clock together now and then.
  int measure(int iterations, const Order& order) {
    double* times = board_.times();
    const double start = now_us();
    int done = 0;
    while (done < iterations) {
      const int batch = std::min(iterations - done, std::max(order.least, iterations / kBatches));
      for (const int end = done + batch; done < end; ++done) times[done] = once(done);
      if (board_.max(now_us() - start) > kOverrun * order.budget_us) break;
    }
    return done;
  }

 private:
  double once(int iteration) {
    const BufferSet& set = sets_[iteration & 1];
    board_.barrier();
    const double start = now_us();
    set.run();
    return now_us() - start;
  }

  Board& board_;
  const Call& call_;
  BufferSet sets_[2];
};

std::string summary(const Board& board, int iterations, const std::string& algorithm) {
  std::vector<double> times(static_cast<std::size_t>(iterations));
  for (int i = 0; i < iterations; ++i) times[static_cast<std::size_t>(i)] = board.slowest(i);
  std::sort(times.begin(), times.end());
  const double p95 = times[std::min(times.size() - 1, times.size() * 95 / 100)];
  char text[200];
  std::snprintf(text, sizeof text, "ok %d %.4f %.4f %.4f %s", iterations, times[times.size() / 2], p95,
                times.front(), algorithm.c_str());
  return text;
}

}  // namespace

std::string run_turn(Contender& contender, Board& board, const Order& order) {
  const Call call{order.op, order.bytes, order.variant, board.rank(), board.world(), order.kind};
  if (!contender.supports(call)) return "unsupported";
  Turn turn(contender, board, call);
  double wrong = turn.wrong(0, 1);
  const double estimate = turn.warm_up(order.warmups);
  const double most = std::min(order.most, kMaxIterations);
  const int iterations = static_cast<int>(std::clamp(order.budget_us / estimate, 1.0 * order.least, most));
  const int timed = turn.measure(iterations, order);
  const std::string answer = summary(board, timed, contender.algorithm(call));
  wrong += turn.wrong(1, 2);
  return wrong == 0 ? answer : "wrong " + std::to_string(static_cast<std::uint64_t>(wrong));
}

}  // namespace peers
