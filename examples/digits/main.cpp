// digits: trains a multilayer perceptron on handwritten digits, with as many ranks as it is started with.
//
//   lockstep-run -n 4 digits        four ranks
//   digits                          one
#include <limits.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <exception>
#include <numeric>
#include <string>

#include "examples/digits/dataset.hpp"
#include "examples/digits/overlap.hpp"
#include "examples/digits/progress_bar.hpp"
#include "examples/digits/stopwatch.hpp"
#include "examples/digits/trainer.hpp"
#include "examples/loss_file.hpp"
#include "lockstep/lockstep.hpp"

namespace digits {
namespace {

struct Options {
  TrainingOptions training;
  std::string data = DIGITS_DATA;
  std::string loss_file;
  bool print_hash = false;
};

void add_options(CLI::App& app, Options& options) {
  const CLI::Range some(1, 1'000'000);
  TrainingOptions& t = options.training;
  app.add_option("--hidden", t.hidden, "width of each hidden layer")->check(some)->capture_default_str();
  app.add_option("--layers", t.layers, "hidden layers")->check(some)->capture_default_str();
  app.add_option("--batch", t.batch, "samples a step, over all ranks together")
      ->check(some)
      ->capture_default_str();
  app.add_option("--epochs", t.epochs, "passes over the data")->check(some)->capture_default_str();
  app.add_option("--lr", t.rate, "learning rate at the start; falls linearly to zero")->capture_default_str();
  app.add_option("--momentum", t.momentum, "of the gradient descent")->capture_default_str();
  app.add_option("--seed", t.seed, "of the weights and of the samples' order")->capture_default_str();
  app.add_option("--data", options.data, "the digits")->capture_default_str();
  app.add_option("--loss-file", options.loss_file, "write the loss of every step here");
  app.add_flag("--print-hash", options.print_hash, "every rank says what its parameters hash to at the end");
}

/// All epochs, each followed by the check that the replicas are equal. Returns the loss of every step.
std::vector<double> train(Trainer& trainer, ProgressBar& bar, std::size_t epochs) {
  std::vector<double> losses;
  for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
    const std::vector<double> steps = trainer.run_epoch(epoch, [&](const Progress& p) { bar.advance(p); });
    trainer.check_replicas();
    bar.end_epoch(epoch,
                  std::accumulate(steps.begin(), steps.end(), 0.0) / static_cast<double>(steps.size()));
    losses.insert(losses.end(), steps.begin(), steps.end());
  }
  return losses;
}

void print_start(const lockstep::Communicator& communicator, const Trainer& trainer, const Split& data) {
  std::printf("%s\n%zu parameters in %zu buckets; %zu samples to train on, %zu held out\n",
              communicator.describe().c_str(), trainer.network().parameter_count(),
              trainer.reducer().plan().buckets.size(), data.train.size(), data.test.size());
}

/// What there was to hide, as the closing line says it. Where synchronisation costs more than the
/// communication alone, because ranks wait for each other, nothing is hidden; where steps with it were the
/// faster ones, as on a busy machine, all of it. The line before says how much it costs.
std::string hidden_share(const Overlap& overlap, int ranks) {
  if (ranks == 1) return "no communication";
  char text[64];
  std::snprintf(text, sizeof text, "%.0f %% of communication hidden",
                100.0 * std::clamp(overlap.hidden(), 0.0, 1.0));
  return text;
}

/// One line of every rank, for those who compare the replicas from outside.
void print_hash(const lockstep::Communicator& communicator, const Trainer& trainer) {
  char host[HOST_NAME_MAX + 1] = "?";
  gethostname(host, sizeof host - 1);
  std::printf("rank %d of %d on %s: parameters %016" PRIx64 "\n", communicator.rank(), communicator.size(),
              host, trainer.parameters_hash());
}

void print_end(double accuracy, double samples_per_second, const Overlap& overlap, int ranks) {
  std::printf("%.0f samples/s\n", samples_per_second);
  std::printf(
      "step %.3f ms, without synchronisation %.3f ms, difference %.3f ms; communication alone %.3f ms\n",
      1e3 * overlap.step, 1e3 * overlap.step_alone, 1e3 * overlap.exposed, 1e3 * overlap.communication);
  std::printf("digits: accuracy %.4f, replicas equal, %d rank%s, %s\n", accuracy, ranks,
              ranks == 1 ? "" : "s", hidden_share(overlap, ranks).c_str());
}

void run(const Options& options) {
  const Split data = load_digits(options.data);
  auto communicator = lockstep::Communicator::create();
  const bool shows = communicator.rank() == 0;
  examples::LossFile loss_file(shows ? options.loss_file : "");
  Trainer trainer(communicator, data.train, options.training);
  if (shows) print_start(communicator, trainer, data);

  ProgressBar bar(shows, options.training.epochs, trainer.steps_per_epoch());
  const Stopwatch watch;
  const std::vector<double> losses = train(trainer, bar, options.training.epochs);
  const double seconds = watch.seconds();
  if (options.print_hash) print_hash(communicator, trainer);
  loss_file.add_all(losses);

  const double accuracy = trainer.accuracy(data.test);
  const Overlap overlap = measure_overlap(communicator, trainer);
  const double samples = static_cast<double>(losses.size() * options.training.batch);
  if (shows) print_end(accuracy, samples / seconds, overlap, communicator.size());
  communicator.finalize();
}

}  // namespace
}  // namespace digits

int main(int argc, char** argv) try {
  CLI::App app("Trains a network on handwritten digits, data-parallel over the ranks it is started with.");
  digits::Options options;
  digits::add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  digits::run(options);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "digits: %s\n", error.what());
  return 1;
}
