// data_parallel: the same training in three forms, measured against each other.
//
//   lockstep-run -n 4 --only-rank 0 data_parallel
//
// The ranks that lockstep-run started train as distributed data parallel and with a parameter server. Then
// the first of them trains alone, with as many threads as there are ranks: the one-process form.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <thread>

#include "examples/data_parallel/replica.hpp"
#include "examples/digits/stopwatch.hpp"

namespace data_parallel {
namespace {

/// The forms add the same gradients in other orders; what they do to the loss of a few hundred steps stays
/// below this.
constexpr double kTolerance = 1e-3;

struct Options {
  TrainingOptions training;
  std::size_t batch = 64;
  std::size_t steps = 4;
  std::size_t rounds = 41;
  std::string data = DIGITS_DATA;
};

struct Measured {
  const char* form;
  std::vector<double> milliseconds;  // Of a step, one for each round.
  std::vector<double> losses;        // Of every step.
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Of two forms' times within a round: the load of the machine changes between rounds.
double median_ratio(const Measured& a, const Measured& b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < a.milliseconds.size(); ++i)
    ratios.push_back(a.milliseconds[i] / b.milliseconds[i]);
  return median(ratios);
}

/// The samples of every rank in one step.
using Shares = std::vector<std::vector<std::size_t>>;

class Batches {
 public:
  Batches(std::size_t samples, int ranks, const Options& options)
      : share_(options.batch / static_cast<std::size_t>(ranks)) {
    for (int r = 0; r < ranks; ++r)
      samplers_.emplace_back(samples, ranks, r, true, options.training.seed, true);
    if (share_ * samplers_.size() != options.batch || share_ > samplers_.front().size()) {
      throw std::invalid_argument("--batch " + std::to_string(options.batch) + " cannot be dealt evenly to " +
                                  std::to_string(ranks) + " ranks, or is more than the samples");
    }
  }

  Shares of_step(std::size_t step) {
    const std::size_t steps_per_epoch = samplers_.front().size() / share_;
    Shares shares;
    for (auto& sampler : samplers_) {
      sampler.set_epoch(step / steps_per_epoch);
      const auto all = sampler.indices();
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(step % steps_per_epoch * share_);
      shares.emplace_back(first, first + static_cast<std::ptrdiff_t>(share_));
    }
    return shares;
  }

 private:
  std::size_t share_;
  std::vector<lockstep::DistributedSampler> samplers_;
};

/// One round of one form on this rank.
void train(Form& form, const std::vector<Shares>& round, lockstep::Communicator& communicator,
           Measured& measured) {
  communicator.barrier();
  const digits::Stopwatch watch;
  for (const Shares& shares : round) measured.losses.push_back(form.step(shares));
  communicator.barrier();
  measured.milliseconds.push_back(1e3 * watch.seconds() / static_cast<double>(round.size()));
}

/// The ranks of the one-process form: a thread each, in the process of rank 0.
class Threads {
 public:
  Threads(int ranks, const digits::Dataset& data, const TrainingOptions& options)
      : group_(lockstep::Communicator::local_group(ranks)) {
    for (auto& communicator : group_) forms_.push_back(make_scattering(communicator, data, options));
  }

  void train(const std::vector<Shares>& round, Measured& measured) {
    std::vector<Measured> others(group_.size());
    std::vector<std::thread> threads;
    for (std::size_t r = 1; r < group_.size(); ++r) {
      threads.emplace_back([&, r] { run(r, round, others[r]); });
    }
    run(0, round, measured);
    for (std::thread& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  /// An exception must not end the process while the other threads wait for this one.
  void run(std::size_t rank, const std::vector<Shares>& round, Measured& measured) {
    try {
      data_parallel::train(*forms_[rank], round, group_[rank], measured);
    } catch (const std::exception& error) {
      if (rank == 0) failure_ = std::current_exception();
      group_[rank].abort(error.what());
    }
  }

  std::vector<lockstep::Communicator> group_;
  std::vector<std::unique_ptr<Form>> forms_;
  std::exception_ptr failure_;  // Of rank 0, which hears of every other's.
};

void print(const std::vector<Measured>& table) {
  std::printf("%-54s %9s %9s %9s\n", "form", "step ms", "ratio", "loss");
  for (const Measured& row : table) {
    std::printf("%-54s %9.2f %9.2f %9.4f\n", row.form, median(row.milliseconds),
                median_ratio(row, table.front()), row.losses.back());
  }
}

/// All forms compute the same, or one of them is wrong.
void check_losses(const std::vector<Measured>& table) {
  double worst = 0;
  for (const Measured& row : table) {
    for (std::size_t s = 0; s < row.losses.size(); ++s)
      worst = std::max(worst, std::abs(row.losses[s] - table.front().losses[s]));
  }
  if (!(worst <= kTolerance)) throw std::runtime_error("the forms have different losses");
  std::printf("losses of all steps agree to %.1e\n", worst);
}

void run(const Options& options) {
  const digits::Dataset data = digits::load_digits(options.data).train;
  auto communicator = lockstep::Communicator::create();
  const int ranks = communicator.size();
  const bool first = communicator.rank() == 0;
  Batches batches(data.size(), ranks, options);
  const auto distributed = make_distributed(communicator, data, options.training);
  const auto server = make_parameter_server(communicator, data, options.training);
  std::unique_ptr<Threads> threads;
  if (first) threads = std::make_unique<Threads>(ranks, data, options.training);

  std::vector<Measured> table{{"distributed: a process a rank, reducer", {}, {}},
                              {"parameter server: reduce to a root, step, broadcast", {}, {}},
                              {"one process: scatter, replicate, apply, gather", {}, {}}};
  // The forms take turns, so that a change in the machine's load meets all of them.
  for (std::size_t round = 0; round < options.rounds; ++round) {
    std::vector<Shares> steps;
    for (std::size_t s = 0; s < options.steps; ++s)
      steps.push_back(batches.of_step(round * options.steps + s));
    train(*distributed, steps, communicator, table[0]);
    train(*server, steps, communicator, table[1]);
    if (first) threads->train(steps, table[2]);
  }
  if (first) {
    std::printf("%d ranks, batches of %zu, %zu steps\n", ranks, options.batch,
                options.rounds * options.steps);
    print(table);
    check_losses(table);
  }
  communicator.finalize();
}

}  // namespace
}  // namespace data_parallel

int main(int argc, char** argv) try {
  CLI::App app("Trains a network on handwritten digits in three data-parallel forms and compares them.");
  data_parallel::Options options;
  const CLI::Range some(1, 1'000'000);
  app.add_option("--hidden", options.training.hidden, "width of the two hidden layers")
      ->check(some)
      ->capture_default_str();
  app.add_option("--batch", options.batch, "samples a step, over all ranks together")
      ->check(some)
      ->capture_default_str();
  app.add_option("--steps", options.steps, "steps a round of each form")->check(some)->capture_default_str();
  app.add_option("--rounds", options.rounds, "rounds; medians are shown")->check(some)->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  data_parallel::run(options);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "data_parallel: %s\n", error.what());
  return 1;
}
