// What the trainings of the GPT, on the CPU and on GPUs, are given alike.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <string>

#include "examples/gpt/adamw.hpp"

namespace gpt {

inline constexpr std::size_t kRepeats = 20;  // Of all sentences, in different orders.
inline constexpr std::size_t kLinesInAll = 10;

struct TrainingOptions {
  std::size_t steps = 1200;
  std::size_t batch = 8;
  std::uint64_t seed = 1;
  float rate = AdamWOptions{}.rate;
  std::string loss_file;
};

inline void add_options(CLI::App& app, TrainingOptions& options) {
  const CLI::Range some(1, 1'000'000);
  app.add_option("--steps", options.steps, "optimizer steps")->check(some)->capture_default_str();
  app.add_option("--batch", options.batch, "sequences a step, over all ranks")
      ->check(some)
      ->capture_default_str();
  app.add_option("--lr", options.rate, "learning rate")->capture_default_str();
  app.add_option("--seed", options.seed, "of the weights and of the batches")->capture_default_str();
  app.add_option("--loss-file", options.loss_file, "write the loss of every step here");
}

}  // namespace gpt
