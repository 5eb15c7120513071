// Residual: what a bucket has not sent yet, for hooks with error feedback.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace lockstep::internal {

/// A step works on a copy that takes the place of the other when the step is good, so that one that fails
/// leaves what the steps before had left. Adding the gradients makes the copy, which costs no pass of its
/// own.
class Residual {
 public:
  /// Without `keeps` nothing is ever left for the next step, and the memory is that of the copy.
  void resize(std::size_t count, bool keeps) {
    kept_.assign(keeps ? count : 0, 0.0f);
    next_.assign(count, 0.0f);
    fresh_ = false;
  }

  /// Begins a step: the bucket's gradients, and what was left behind.
  std::span<float> add(const float* bucket) {
    add(bucket, 0, next_.size());
    return next_;
  }
  /// The same for some of its elements.
  void add(const float* bucket, std::size_t offset, std::size_t count) {
    fresh_ = true;
    if (kept_.empty()) {
      std::copy_n(bucket + offset, count, next_.data() + offset);
    } else {
      for (std::size_t i = offset; i < offset + count; ++i) next_[i] = kept_[i] + bucket[i];
    }
  }
  /// What the step under way works on, and leaves behind if it is good.
  std::span<float> next() { return next_; }

  void end_step(bool good) {
    if (std::exchange(fresh_, false) && good && !kept_.empty()) kept_.swap(next_);
  }

  /// As the last good step left it. Empty where nothing is kept.
  std::span<float> kept() { return kept_; }

 private:
  std::vector<float> kept_, next_;
  bool fresh_ = false;  // The step has begun.
};

}  // namespace lockstep::internal
