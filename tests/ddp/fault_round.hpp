// A random training run among a few ranks, in which one of them may do or suffer something on the way; and
// what one process alone would compute for it. All of it follows from a seed.
#pragma once

#include <algorithm>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "lockstep/ddp.hpp"
#include "tests/support/mix.hpp"

namespace lockstep {

enum class Fault : std::uint8_t {
  none,
  paused,        ///< SIGSTOP, and SIGCONT after a while.
  differs,       ///< Another list of parameters at the start; the right one then.
  marked_twice,  ///< From here on errors of use, after which the step is repeated.
  not_marked,
  not_finite,
  wrong_result,
  killed,  ///< From here on what ends the group.
  killed_at_any_time,
  left,     ///< Between steps: reducer and communicator are destroyed.
  unwound,  ///< The same in a step, as by an exception out of backward.
  hook_threw,
  skipped,  ///< A step that all others take.
  swapped,  ///< Two reducers take their steps in another order.
};
constexpr int kFaults = 14;

constexpr bool is_error_of_use(Fault f) { return f >= Fault::marked_twice && f <= Fault::wrong_result; }
constexpr bool ends_group(Fault f) { return f >= Fault::killed; }
constexpr bool ends_process(Fault f) { return f == Fault::killed || f == Fault::killed_at_any_time; }

struct RoundTensor {
  DataType type = DataType::f32;
  std::size_t elements = 0;
  std::size_t marks = 1;  // A step; others than 1 with a static graph only.
};

struct Round {
  static constexpr std::size_t kSteps = 4;

  unsigned seed = 0;
  int ranks = 2;
  std::string transports;
  bool two_hosts = false;
  bool on_split = false;  // The trainer has a communicator of its own.
  int zero = 0;           // 1 and 2: a ShardedOptimizer of that stage.
  std::vector<RoundTensor> tensors;
  ReducerOptions options;
  std::string hook;
  bool accumulates = false;   // Two micro-batches a step.
  bool uneven = false;        // begin_step(), and ranks without data.
  bool freezes = false;       // Some parameters, for two steps.
  bool two_threads = false;   // Mark.
  bool two_trainers = false;  // On one communicator, taking turns.
  bool loads = false;         // Each rank has a child, which outlives it.
  Fault fault = Fault::none;
  int culprit = 0;
  std::size_t fault_step = 0;
  std::size_t fault_mark = 0;  // 0: before the step; then at its marks, before wait() and after it.

  bool views(int rank) const { return zero == 0 ? (seed + static_cast<unsigned>(rank)) % 3 > 0 : zero == 1; }
  /// Whether the result can be told.
  bool exact() const { return hook != "i8" && hook != "powersgd"; }
  std::size_t batches() const { return accumulates ? 2 : 1; }

  unsigned dice(std::size_t a, std::size_t b, std::size_t c, std::size_t d = 0) const {
    std::uint64_t drawn = seed;
    for (const std::uint64_t number : {a, b, c, d}) drawn = internal::testing::mix(drawn + number + 1);
    return static_cast<unsigned>(drawn);
  }
  std::uint64_t samples(int rank, std::size_t step) const {
    if (!uneven) return 1;
    if (rank == 0) return 2;  // Some rank has data.
    return dice(1, static_cast<std::size_t>(rank), step) % 4;
  }
  bool frozen(std::size_t step, std::size_t i) const {
    return freezes && i > 0 && (step == 1 || step == 2) && dice(2, i, 0) % 3 == 0;
  }
  bool uses(int rank, std::size_t step, std::size_t batch, std::size_t i) const {
    if (samples(rank, step) == 0 || tensors[i].marks == 0 || frozen(step, i)) return false;
    if (!options.find_unused || options.static_graph) return true;
    return dice(3 + batch, static_cast<std::size_t>(rank), step, i) % 3 > 0;
  }
  bool any_uses(std::size_t step, std::size_t i) const {
    for (int r = 0; r < ranks; ++r) {
      for (std::size_t b = 0; b < batches(); ++b) {
        if (uses(r, step, b, i)) return true;
      }
    }
    return false;
  }
  int local(int rank, std::size_t step, std::size_t batch, std::size_t i, std::size_t e) const {
    return static_cast<int>((i * 5 + e + step * 3 + batch) % 7) - 3 + (rank & 1);
  }
  double weight(int rank, std::size_t step) const {
    if (!options.weighted) return options.average ? 1.0 / ranks : 1.0;
    double all = 0;
    for (int r = 0; r < ranks; ++r) all += static_cast<double>(samples(r, step));
    return static_cast<double>(samples(rank, step)) / all;
  }
  double reduced(std::size_t step, std::size_t i, std::size_t e) const {
    double sum = 0;
    for (int r = 0; r < ranks; ++r) {
      for (std::size_t b = 0; b < batches(); ++b) {
        if (uses(r, step, b, i)) sum += weight(r, step) * local(r, step, b, i, e);
      }
    }
    return sum;
  }
  /// The same with so many ranks, and nothing happens.
  Round in_peace(int ranks_left) const {
    Round next = *this;
    next.ranks = ranks_left;
    next.fault = Fault::none;
    return next;
  }
};

/// Relative, of sums of a few small numbers that are weighted on their way.
inline double tolerance(DataType type, const std::string& hook) {
  if (type == DataType::bf16 || hook == "bf16") return 0.05;
  if (type == DataType::f16) return 0.01;
  return 1e-4;
}

/// What one process would make of the values, by gradient descent with momentum.
struct Reference {
  std::vector<std::vector<double>> values, momentum;
};

inline void choose_options(Round& r, std::mt19937& random) {
  const auto below = [&](unsigned n) { return static_cast<unsigned>(random()) % n; };
  ReducerOptions& o = r.options;
  o.bucket_bytes = 1 + below(below(3) == 0 ? 200'000 : 20'000);
  o.first_bucket_bytes = 1 + below(4'000);
  o.average = below(3) > 0;
  r.uneven = below(3) == 0;
  o.weighted = r.uneven && o.average && below(2) == 0;
  r.accumulates = below(3) == 0;
  o.find_unused = below(3) == 0;
  o.check_finite = below(3) == 0 || r.fault == Fault::not_finite;
  constexpr const char* kHooks[] = {"",           "",     "",      "",   "all_reduce",
                                    "all_reduce", "bf16", "top_k", "i8", "powersgd"};
  r.hook = kHooks[below(std::size(kHooks))];
  if (r.fault == Fault::hook_threw || r.fault == Fault::wrong_result) r.hook = "all_reduce";
  const unsigned check = below(3);
  if (check > 0) o.check_first = check == 2;
  if (r.zero > 0) return;
  o.static_graph = !r.accumulates && below(4) == 0;
  o.split_large = below(3) > 0;
  o.overlap_forward = r.hook.empty() && below(3) == 0;
  o.half_in_f32 = r.hook.empty() && !o.overlap_forward && below(3) == 0;
  o.check_replicas_every = below(3);
  r.freezes = below(3) == 0 && !(is_error_of_use(r.fault) && o.static_graph);
}

inline void choose_tensors(Round& r, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
  constexpr DataType kTypes[] = {DataType::f32, DataType::f32, DataType::f16, DataType::bf16, DataType::f64};
  const bool large = below(4) == 0;
  if (large) r.options.bucket_bytes *= 20;
  const std::size_t tensors = 1 + below(12);
  for (std::size_t i = 0; i < tensors; ++i) {
    RoundTensor t;
    t.elements = below(std::size_t{1} << below(large ? 18 : 14)) + (i == 0 ? 1 : 0);
    const bool any_type = r.hook.empty() || r.hook == "all_reduce" || r.hook == "bf16";
    if (r.zero == 0 && any_type) t.type = kTypes[below(std::size(kTypes))];
    if (r.options.static_graph) t.marks = i == 0 ? 1 + below(2) : below(4);
    r.tensors.push_back(t);
  }
}

inline Round random_round(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
  Round r;
  r.seed = seed;
  r.ranks = 2 + static_cast<int>(below(3));
  constexpr const char* kTransports[] = {"shm", "shm", "tcp", "auto", "auto"};
  r.transports = kTransports[below(std::size(kTransports))];
  r.two_hosts = r.transports == "auto" && below(2) == 0;
  r.fault = static_cast<Fault>(below(kFaults));
  r.culprit = static_cast<int>(below(static_cast<std::size_t>(r.ranks)));
  r.fault_step = below(Round::kSteps);
  // Who skips a step on one communicator waits for the others on another one; and where a rank dies while the
  // group is split, others that go on know only who did not come.
  r.on_split = r.fault != Fault::skipped && r.fault != Fault::killed_at_any_time && below(3) == 0;
  r.two_trainers = r.fault == Fault::swapped || (!ends_group(r.fault) && below(4) == 0);
  r.zero = r.fault == Fault::swapped ? 0 : std::max(static_cast<int>(below(5)) - 2, 0);
  choose_options(r, random);
  choose_tensors(r, random);
  const std::size_t marks = r.tensors.size();
  if (r.fault == Fault::unwound) r.fault_mark = 1 + below(marks + 1);
  if (r.fault == Fault::killed || r.fault == Fault::paused) r.fault_mark = below(marks + 3);
  r.two_threads = !ends_group(r.fault) && below(2) == 0;
  r.loads = below(4) == 0;
  return r;
}

}  // namespace lockstep
