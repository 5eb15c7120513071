#include "bench/device/measure.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "bench/data.hpp"
#include "bench/device/check.hpp"
#include "bench/device/memory.hpp"
#include "bench/sweep.hpp"
#include "lockstep/device_runtime.hpp"

namespace lockstep::bench {
namespace {

// A call in a graph.
class Captured {
 public:
  template <typename Call>
  Captured(Stream stream, Call call) : stream_(stream) {
    device::begin_capture(stream);
    try {
      call();
    } catch (...) {
      device::destroy_graph(device::end_capture(stream));
      throw;
    }
    graph_ = device::end_capture(stream);
  }
  ~Captured() { device::destroy_graph(graph_); }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  void replay() const { device::replay(graph_, stream_); }

 private:
  const Stream stream_;
  device::Graph graph_ = nullptr;
};

// One operation of one contender at one size, in place or out of place.
class Run {
 public:
  Run(Contender& contender, Board& board, const Options& options, const Call& call, const Placement& memory,
      const Stopwatch& watch, DeviceCheck& check)
      : contender_(contender),
        board_(board),
        options_(options),
        call_(call),
        data_(call),
        watch_(watch),
        check_(check) {
    const double scale = call.op == ReduceOp::premul_sum ? premul_scale(call.rank) : 1;
    enqueued_ = {memory.input, memory.output, call.count, call.type,
                 call.op,      call.root,     scale,      watch.stream()};
  }

  Timing measure() {
    if (options_.graph) captured_.emplace(watch_.stream(), [&] { call(); });
    std::vector<double> times(static_cast<std::size_t>(std::max(options_.warmup, 1)));
    fill(0);
    for (double& time : times) time = once();
    times.resize(iterations_after(times, board_, options_));
    std::uint64_t wrong = 0;
    const bool checks = options_.check && call_.count > 0;
    for (std::size_t i = 0; i < times.size(); ++i) {
      // The last as it comes after the others, the first as well: a round's result is never left from before.
      const bool checked = checks && (i == 0 || i + 1 == times.size());
      if (checked) fill(i + 1);
      times[i] = once();
      if (checked && call_.operation->writes_output(call_.rank, call_.root)) {
        wrong += check_.count_wrong(data_, call_, i + 1, enqueued_.output);
      }
    }
    contender_.check();
    Timing timing = summary_of(times, board_);
    timing.wrong = board_.sum(wrong);
    return timing;
  }

 private:
  double once() {
    board_.barrier();
    return watch_.time([&] { captured_ ? captured_->replay() : call(); });
  }
  void call() { contender_.run(*call_.operation, enqueued_); }

  void fill(std::uint64_t round) { check_.fill(data_, call_, round, const_cast<void*>(enqueued_.input)); }

  Contender& contender_;
  Board& board_;
  const Options& options_;
  const Call& call_;
  const Data data_;
  const Stopwatch& watch_;
  DeviceCheck& check_;
  DeviceCall enqueued_{};
  std::optional<Captured> captured_;
};

}  // namespace

void measure_on_device(std::span<const std::unique_ptr<Contender>> contenders, int rank, int world,
                       Board& board, const Options& options, Clock clock,
                       const std::function<void(const DeviceRow&)>& report) {
  const DeviceBuffer first(options.max_bytes), second(options.max_bytes);
  const Stopwatch watch(clock);
  DeviceCheck check(watch.stream());
  if (options.registered) {
    for (const auto& contender : contenders) {
      contender->register_buffer(first.data(), first.bytes());
      contender->register_buffer(second.data(), second.bytes());
    }
  }
  for_each_row(options, [&](const Operation& operation, DataType type, ReduceOp op, std::uint64_t bytes) {
    const Call call{&operation, type, op, options.root, operation.count(bytes, type, world), rank, world};
    for (const auto& contender : contenders) {
      if (!contender->offers(operation, type, op)) continue;
      const auto run = [&](bool in_place) {
        const Placement memory = place(operation, in_place, rank, options.root, call.count * size_of(type),
                                       first.data(), second.data());
        return Run(*contender, board, options, call, memory, watch, check).measure();
      };
      Row row{&operation, type, op, options.root, call.count, operation.bytes(call.count, type, world),
              {},         {}};
      if (operation.out_of_place) row.out_of_place = run(false);
      if (operation.in_place) row.in_place = run(true);
      report({contender.get(), row});
    }
  });
}

}  // namespace lockstep::bench
