// gpt: trains a small GPT to count, from sentences in words.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>

#include "examples/gpt/adamw.hpp"
#include "examples/gpt/model.hpp"
#include "examples/gpt/text.hpp"
#include "examples/gpt/training_options.hpp"
#include "examples/loss_file.hpp"
#include "lockstep/lockstep.hpp"

namespace gpt {
namespace {

void run(const TrainingOptions& options) {
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
  gpt::TrainingOptions options;
  gpt::add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  gpt::run(options);
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "gpt: %s\n", error.what());
  return 1;
}
