#include "bench/measure.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include "bench/buffer.hpp"
#include "bench/data.hpp"
#include "bench/sweep.hpp"

namespace lockstep::bench {
namespace {

// One operation at one size, in place or out of place.
class Run {
 public:
  Run(Communicator& communicator, Board& board, const Options& options, const Call& call, Placement memory)
      : communicator_(communicator),
        board_(board),
        options_(options),
        call_(call),
        data_(call),
        memory_(memory) {
    arguments_ = {memory.input, memory.output, call.count, call.type, call.op, call.root, {}};
    arguments_.options.algorithm = options.algorithm;
    if (call.op == ReduceOp::premul_sum) arguments_.options.scale = premul_scale(call.rank);
    checks_ = options.check && call.count > 0;
    checks_output_ = checks_ && call.operation->writes_output(call.rank, call.root);
  }

  Timing measure() {
    data_.fill_neutral(memory_.input, call_.count * call_.operation->input_blocks(call_.world));
    data_.fill_neutral(memory_.output, call_.count * call_.operation->output_blocks(call_.world));
    std::vector<double> times(static_cast<std::size_t>(std::max(options_.warmup, 1)));
    for (double& time : times) time = once();
    times.resize(iterations_after(times, board_, options_));
    std::uint64_t wrong = 0;
    Traffic before{}, after{};
    for (std::size_t i = 0; i < times.size(); ++i) {
      const bool last = i + 1 == times.size();
      if (checks_) last ? data_.fill(memory_.input, i) : data_.fill_samples(memory_.input, i);
      times[i] = once(last ? &before : nullptr);
      if (last) after = sent_so_far(communicator_);
      if (checks_output_) {
        wrong += last ? data_.count_wrong(memory_.output, i) : data_.count_wrong_samples(memory_.output, i);
      }
    }
    Timing timing = summary_of(times, board_);
    timing.wrong = board_.sum(wrong);
    timing.sent = sent_by_all(board_, before, after);
    return timing;
  }

 private:
  // Microseconds of one call, started together with the other ranks. `sent`: what was sent before it.
  double once(Traffic* sent = nullptr) {
    board_.barrier();
    if (sent != nullptr) *sent = sent_so_far(communicator_);
    const auto start = std::chrono::steady_clock::now();
    call_.operation->run(communicator_, arguments_);
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  }

  Communicator& communicator_;
  Board& board_;
  const Options& options_;
  const Call& call_;
  Data data_;
  Placement memory_;
  Arguments arguments_{};
  bool checks_, checks_output_;
};

}  // namespace

void measure(Communicator& communicator, Board& board, const Options& options,
             const std::function<void(const Row&)>& report) {
  const Buffer first(options.max_bytes, options.registered), second(options.max_bytes, options.registered);
  const int rank = communicator.rank(), world = communicator.size();

  const auto measure_row = [&](const Operation& operation, DataType type, ReduceOp op, std::uint64_t bytes) {
    const Call call{&operation, type, op, options.root, operation.count(bytes, type, world), rank, world};
    const auto run = [&](bool in_place) {
      const Placement memory = place(operation, in_place, rank, options.root, call.count * size_of(type),
                                     first.data(), second.data());
      return Run(communicator, board, options, call, memory).measure();
    };
    Row row{&operation, type, op, options.root, call.count, operation.bytes(call.count, type, world), {}, {}};
    if (operation.out_of_place) row.out_of_place = run(false);
    if (operation.in_place) row.in_place = run(true);
    report(row);
  };

  for_each_row(options, measure_row);
}

}  // namespace lockstep::bench
