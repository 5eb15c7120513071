#include "examples/digits/overlap.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "examples/digits/stopwatch.hpp"

namespace digits {
namespace {

constexpr std::size_t kRounds = 101;  // Enough for medians that a few disturbed rounds do not move.

/// Seconds from the first rank's start of `call` to the last rank's end, as this rank sees it: the rank that
/// starts first sees most. The barriers are the same for whatever is measured, and cost microseconds.
double time(lockstep::Communicator& communicator, const std::function<void()>& call) {
  communicator.barrier();
  const Stopwatch watch;
  call();
  communicator.barrier();
  return watch.seconds();
}

using Rounds = std::array<double, kRounds>;

double median(Rounds values) {
  std::nth_element(values.begin(), values.begin() + kRounds / 2, values.end());
  return values[kRounds / 2];
}

Rounds difference(const Rounds& a, const Rounds& b) {
  Rounds result;
  std::transform(a.begin(), a.end(), b.begin(), result.begin(), std::minus<>());
  return result;
}

}  // namespace

Overlap measure_overlap(lockstep::Communicator& communicator, Trainer& trainer) {
  std::vector<std::size_t> samples(trainer.rank_batch());
  std::iota(samples.begin(), samples.end(), std::size_t{0});
  constexpr double kStandStill = 0.0;
  std::array<Rounds, 3> times;
  auto& [step, step_alone, communication] = times;
  for (std::size_t round = 0; round < kRounds; ++round) {
    step[round] = time(communicator, [&] { trainer.step(samples, kStandStill, true); });
    step_alone[round] = time(communicator, [&] { trainer.step(samples, kStandStill, false); });
    // Right after a step, so that the caches are as backward leaves them.
    communication[round] = time(communicator, [&] { trainer.communicate(); });
  }
  // The whole time is what the rank that started first saw.
  communicator.all_reduce(times.data(), times.data(), times.size() * kRounds, lockstep::DataType::f64,
                          lockstep::ReduceOp::max);
  return {median(step), median(step_alone), median(difference(step, step_alone)), median(communication)};
}

}  // namespace digits
