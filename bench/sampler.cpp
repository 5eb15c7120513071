#include "bench/sampler.hpp"

#include <algorithm>
#include <chrono>

namespace lockstep::bench {
namespace {

// Ranks just started may share a core until the scheduler moves one of them.
constexpr double kSettleSeconds = 0.1;
constexpr int kMostIterations = 100;  // of one candidate in one round

}  // namespace

Sampler::Sampler(Communicator& communicator, Board& board, std::uint64_t most_bytes)
    : communicator_(communicator), board_(board), most_bytes_(most_bytes) {
  for (double longest = 0; longest < kSettleSeconds;) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kMostIterations; ++i) board_.barrier();
    longest += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    board_.max({&longest, 1});
  }
}

Arguments Sampler::arguments(const Candidate& candidate) {
  std::unique_ptr<Pair>& pair = buffers_[candidate.registered];
  if (!pair) pair = std::make_unique<Pair>(most_bytes_, candidate.registered);
  const Operation& operation = *candidate.operation;
  const int world = communicator_.size(), rank = communicator_.rank();
  const DataType type = candidate.type;
  const std::uint64_t count = operation.count(candidate.bytes, type, world);
  const Placement memory = place(operation, operation.in_place, rank, candidate.root, count * size_of(type),
                                 pair->first.data(), pair->second.data());
  Arguments call{memory.input, memory.output, count, type, candidate.op, candidate.root, {}};
  call.options.algorithm = candidate.algorithm;
  return call;
}

// Started together with the other ranks.
double Sampler::once(const Candidate& candidate, const Arguments& call) {
  board_.barrier();
  const auto start = std::chrono::steady_clock::now();
  candidate.operation->run(communicator_, call);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Sampler::median_of(const Candidate& candidate, const Arguments& call, int iterations) {
  std::vector<double> times(static_cast<std::size_t>(iterations));
  for (double& time : times) time = once(candidate, call);
  board_.max(times);
  const auto middle = times.begin() + iterations / 2;
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

std::vector<double> Sampler::measure(std::span<const Candidate> candidates, const Effort& effort) {
  std::vector<std::vector<double>> medians(candidates.size());
  std::vector<Arguments> calls;
  std::vector<int> iterations;
  for (const Candidate& candidate : candidates) {
    calls.push_back(arguments(candidate));
    once(candidate, calls.back());  // programs, connections and mappings are made
    const double estimate = median_of(candidate, calls.back(), 3);
    iterations.push_back(static_cast<int>(std::clamp(effort.seconds / estimate, 1.0, 1.0 * kMostIterations)));
  }
  for (int round = 0; round < effort.rounds; ++round) {
    for (std::size_t i = 0; i < candidates.size(); ++i)
      medians[i].push_back(median_of(candidates[i], calls[i], iterations[i]));
  }
  std::vector<double> quartiles;
  for (std::vector<double>& rounds : medians) {
    std::sort(rounds.begin(), rounds.end());
    quartiles.push_back(rounds[rounds.size() / 4]);
  }
  return quartiles;
}

}  // namespace lockstep::bench
