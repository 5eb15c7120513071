#include "examples/digits/progress_bar.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace digits {
namespace {

constexpr std::size_t kWidth = 40;       // Of the bar; with its text it fits 80 columns.
constexpr std::size_t kLinesInAll = 10;  // About, where the output is no terminal.

}  // namespace

ProgressBar::ProgressBar(bool visible, std::size_t epochs, std::size_t steps_per_epoch)
    : bar_(visible && isatty(STDOUT_FILENO) == 1),
      lines_(visible && !bar_),
      epochs_(epochs),
      steps_per_epoch_(steps_per_epoch) {}

void ProgressBar::advance(const Progress& progress) {
  if (bar_) draw(progress.epoch, progress.epoch * steps_per_epoch_ + progress.step + 1, progress.loss);
}

void ProgressBar::end_epoch(std::size_t epoch, double loss) {
  const std::size_t done = epoch + 1;
  if (bar_) {
    draw(epoch, done * steps_per_epoch_, loss);
    if (done == epochs_) std::puts("");
  } else if (lines_ && (done == epochs_ || done % std::max<std::size_t>(1, epochs_ / kLinesInAll) == 0)) {
    std::printf("epoch %3zu of %zu  loss %.4f\n", done, epochs_, loss);
  }
  std::fflush(stdout);
}

void ProgressBar::draw(std::size_t epoch, std::size_t steps_done, double loss) const {
  const std::size_t filled = kWidth * steps_done / (epochs_ * steps_per_epoch_);
  std::printf("\r[%s%s] epoch %zu/%zu  loss %.4f ", std::string(filled, '#').c_str(),
              std::string(kWidth - filled, '.').c_str(), epoch + 1, epochs_, loss);
  std::fflush(stdout);
}

}  // namespace digits
