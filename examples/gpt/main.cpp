// gpt: trains a small GPT to count, from sentences in words.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

#include "examples/gpt/adamw.hpp"
#include "examples/gpt/model.hpp"
#include "examples/gpt/text.hpp"
#include "examples/loss_file.hpp"
#include "lockstep/lockstep.hpp"

namespace gpt {
namespace {

constexpr std::size_t kRepeats = 20;  // Of all sentences, in different orders.
constexpr std::size_t kLinesInAll = 10;

struct Options {
  std::size_t steps = 1200;
  std::size_t batch = 8;
  std::uint64_t seed = 1;
  float rate = AdamWOptions{}.rate;
  std::string loss_file;
};

void add_options(CLI::App& app, Options& options) {
  const CLI::Range some(1, 1'000'000);
  app.add_option("--steps", options.steps, "optimizer steps")->check(some)->capture_default_str();
  app.add_option("--batch", options.batch, "sequences a step")->check(some)->capture_default_str();
  app.add_option("--lr", options.rate, "learning rate")->capture_default_str();
  app.add_option("--seed", options.seed, "of the weights and of the batches")->capture_default_str();
  app.add_option("--loss-file", options.loss_file, "write the loss of every step here");
}

void run(const Options& options) {
  examples::LossFile losses(options.loss_file);
  const Text text(write_counting(kRepeats));
  const Config config{.vocabulary = text.vocabulary()};
  Model model(config, options.seed);
  auto communicator = lockstep::Communicator::create();
  std::vector<lockstep::Parameter> parameters;
  for (Tensor* t : model.tensors())
    parameters.push_back({t->name, lockstep::DataType::f32, t->shape, t->value.data(), t->gradient.data()});
  lockstep::Reducer reducer(communicator, parameters, {.gradients_as_views = false});
  const std::size_t rank = communicator.rank(), ranks = communicator.size(), share = options.batch / ranks;
  if (share * ranks != options.batch) throw std::invalid_argument("--batch is no multiple of the ranks");
  AdamW optimizer(model.tensors(), {.rate = options.rate});
  Random random(options.seed);

  for (std::size_t step = 0; step < options.steps; ++step) {
    const auto starts = draw_starts(options.batch, text.size(), config.length, random);
    double loss = model.loss(text.cut(std::span(starts).subspan(rank * share, share), config.length));
    model.backward([&](std::size_t i) { reducer.mark_ready(i); });
    reducer.wait();
    communicator.all_reduce(&loss, &loss, 1, lockstep::DataType::f64, lockstep::ReduceOp::avg);
    optimizer.step();
    losses.add(step, loss);
    if ((step + 1) % std::max<std::size_t>(1, options.steps / kLinesInAll) == 0)
      std::printf("step %4zu of %zu  loss %.4f\n", step + 1, options.steps, loss);
  }
  losses.finish();
  for (const char* prompt : {"after seven comes", "before seven comes"})
    std::puts(complete(model, text, prompt, config.length).c_str());
  communicator.finalize();
}

}  // namespace
}  // namespace gpt

int main(int argc, char** argv) try {
  CLI::App app("Trains a small GPT to count in words.");
  gpt::Options options;
  gpt::add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  gpt::run(options);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "gpt: %s\n", error.what());
  return 1;
}
