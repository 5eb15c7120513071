#include "bench/calibrate_samples.hpp"

#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <new>
#include <span>
#include <stdexcept>
#include <string>

#include "bench/calibrate_probes.hpp"
#include "bench/launch.hpp"
#include "bench/programs.hpp"
#include "bench/sampler.hpp"
#include "collectives/engine/limits.hpp"
#include "lib/base/core_set.hpp"

namespace lockstep::bench {
namespace {

using internal::Algorithm;
using internal::Medium;
using internal::Sample;

// Bytes of the larger side: latency, what the first caches hold, what the last one holds, and beyond.
constexpr std::uint64_t kSizes[] = {64, 1 << 10, 8 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20, 8 << 20};
constexpr std::uint64_t kMostBytes = 8 << 20;
constexpr double kSeconds = 2.5e-3;  // of one algorithm in one round
constexpr int kRounds = 7;
// A world that takes longer, on a slow or busy machine, makes haste from there on.
constexpr Effort kHaste{1e-3, 1};
constexpr double kWorldSeconds = 3.8;

// Results of forked ranks.
class SharedDoubles {
 public:
  explicit SharedDoubles(std::size_t count) : bytes_((count + 1) * sizeof(double)) {
    void* pages = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    values_ = static_cast<double*>(pages);
  }
  ~SharedDoubles() { munmap(values_, bytes_); }
  SharedDoubles(const SharedDoubles&) = delete;
  SharedDoubles& operator=(const SharedDoubles&) = delete;
  double& operator[](std::size_t index) { return values_[index]; }

 private:
  std::size_t bytes_;
  double* values_;
};

const Operation* operation_of(Collective collective) {
  for (const Operation& operation : operations()) {
    if (operation.name == name_of(collective)) return &operation;
  }
  return nullptr;
}

bool runs_on(const Algorithm& algorithm, const std::string& transport) {
  if (algorithm.medium == Medium::domain_pulled) return false;  // Tried by calls themselves.
  return (algorithm.medium == Medium::links) == (transport == "tcp");
}

// Calls of one size that are measured side by side.
struct Turn {
  std::vector<Candidate> candidates;
  std::vector<Sample> samples;
};

internal::CostGround ground_of(int ranks, int cores, std::uint64_t segment_bytes) {
  return {ranks, ranks > cores ? internal::Load::crowded : internal::Load::spare, segment_bytes};
}

// The algorithms that `wanted` lets pass, at each size.
template <typename Wanted>
std::vector<Turn> turns_of(const internal::CostGround& ground, std::span<const std::uint64_t> sizes,
                           Wanted wanted) {
  std::vector<Turn> turns;
  for (const std::uint64_t size : sizes) {
    Turn& turn = turns.emplace_back();
    for (const Algorithm& algorithm : internal::algorithms()) {
      const Operation* operation = operation_of(algorithm.collective);
      if (operation == nullptr || operation->source == Source::none) continue;
      if (!wanted(algorithm)) continue;
      const std::uint64_t bytes =
          operation->count(size, DataType::f32, ground.world) * size_of(DataType::f32);
      if (!supports(algorithm, ground, bytes)) continue;
      turn.candidates.push_back(
          {operation, full_name(algorithm), algorithm.medium == Medium::domain_registered, size});
      turn.samples.push_back({&algorithm, ground, bytes, 0});
    }
  }
  return turns;
}

void run_world(int ranks, const char* transport, const RankMain& body) {
  Options options;
  options.ranks = ranks;
  options.transport = transport;
  // Where the ranks fit the cores each has its own, wherever the scheduler would put them.
  const auto bound = [&](Communicator& communicator, Board& board) {
    if (static_cast<std::size_t>(ranks) <= internal::allowed_cores().count())
      bind_to_core(static_cast<std::size_t>(communicator.rank()));
    return body(communicator, board);
  };
  if (const int status = launch(options, bound); status != 0)
    throw std::runtime_error("a rank of the calibration ended with status " + std::to_string(status));
}

// Runs the turns in a fresh world.
std::vector<Sample> sample(const std::vector<Turn>& turns, const CalibrationWorld& world) {
  std::vector<Sample> samples;
  for (const Turn& turn : turns) samples.insert(samples.end(), turn.samples.begin(), turn.samples.end());
  SharedDoubles results(samples.size());
  const Effort effort{kSeconds, world.rounds > 0 ? world.rounds : kRounds};
  run_world(world.ranks, world.transport, [&](Communicator& communicator, Board& board) {
    Sampler sampler(communicator, board, kMostBytes);
    const auto start = std::chrono::steady_clock::now();
    std::size_t next = 0;
    for (const Turn& turn : turns) {
      double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      board.max({&passed, 1});
      const bool in_time = world.rounds > 0 || passed < kWorldSeconds;
      for (const double seconds : sampler.measure(turn.candidates, in_time ? effort : kHaste)) {
        if (communicator.rank() == 0) results[next] = seconds;
        ++next;
      }
    }
    return 0;
  });
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i].seconds = results[i];
  return samples;
}

// A LOCKSTEP_ variable for the worlds that are forked meanwhile.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, std::uint64_t value) : name_(name) {
    if (const char* const before = std::getenv(name)) before_ = before;
    setenv(name, std::to_string(value).c_str(), 1);
  }
  ~ScopedVariable() { setenv(name_, before_.c_str(), 1); }  // empty counts as not set
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* name_;
  std::string before_;
};

// Seconds of one call in a fresh world.
double time_of(int ranks, const char* transport, const Candidate& candidate, const Effort& effort) {
  SharedDoubles result(1);
  run_world(ranks, transport, [&](Communicator& communicator, Board& board) {
    const double seconds =
        Sampler(communicator, board, candidate.bytes).measure({&candidate, 1}, effort).front();
    if (communicator.rank() == 0) result[0] = seconds;
    return 0;
  });
  return result[0];
}

}  // namespace

std::vector<Sample> sample_world(const CalibrationWorld& world) {
  const auto runs = [&](const Algorithm& algorithm) { return runs_on(algorithm, world.transport); };
  return sample(turns_of(ground_of(world.ranks, world.cores, internal::kSegmentBytes), kSizes, runs), world);
}

double sample_inline(const CalibrationWorld& world) {
  return time_of(world.ranks, "shm", {operation_of(Collective::all_reduce), "", false, 8}, {5e-3, 40});
}

int sample_tcp_sockets() {
  constexpr double kWorthIt = 0.9;  // of the time with fewer
  constexpr std::uint64_t kLong = 8 << 20;
  int best = 1;
  double least = 0;
  for (const unsigned sockets : {1, 2, 4}) {
    const ScopedVariable set("LOCKSTEP_TCP_SOCKETS", sockets);
    const double seconds =
        time_of(2, "tcp", {operation_of(Collective::all_reduce), "links/ring", false, kLong}, {60e-3, 3});
    if (sockets > 1 && seconds > least * kWorthIt) continue;
    best = static_cast<int>(sockets);
    least = seconds;
  }
  return best;
}

}  // namespace lockstep::bench
