// What the user sees while the network trains: a bar that redraws itself on a terminal, a line now and then
// elsewhere.
#pragma once

#include <cstddef>

#include "examples/digits/trainer.hpp"

namespace digits {

/// Writes to standard output; nothing at all unless `visible` (one rank shows, the others work).
class ProgressBar {
 public:
  ProgressBar(bool visible, std::size_t epochs, std::size_t steps_per_epoch);
  /// After each step.
  void advance(const Progress& progress);
  /// After each epoch, with its mean loss.
  void end_epoch(std::size_t epoch, double loss);

 private:
  void draw(std::size_t epoch, std::size_t steps_done, double loss) const;

  bool bar_;
  bool lines_;
  std::size_t epochs_;
  std::size_t steps_per_epoch_;
};

}  // namespace digits
