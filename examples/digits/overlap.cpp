#include "examples/digits/overlap.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>

#include "examples/digits/stopwatch.hpp"

namespace digits {
namespace {

constexpr std::size_t kRounds = 31;        // Enough for a median that one disturbed round does not move.
constexpr std::size_t kStepsPerRound = 4;  // So that the barrier before each round weighs little.

/// Seconds for each of kStepsPerRound calls, all ranks starting together.
double time_steps(lockstep::Communicator& communicator, const std::function<void()>& call) {
  communicator.barrier();
  const Stopwatch watch;
  for (std::size_t i = 0; i < kStepsPerRound; ++i) call();
  return watch.seconds() / static_cast<double>(kStepsPerRound);
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
    step[round] = time_steps(communicator, [&] { trainer.step(samples, kStandStill, true); });
    step_alone[round] = time_steps(communicator, [&] { trainer.step(samples, kStandStill, false); });
    communication[round] = time_steps(communicator, [&] { trainer.communicate(); });
  }
  // The job is as fast as its slowest rank.
  communicator.all_reduce(times.data(), times.data(), times.size() * kRounds, lockstep::DataType::f64,
                          lockstep::ReduceOp::max);
  return {median(step), median(step_alone), median(difference(step, step_alone)), median(communication)};
}

}  // namespace digits
