// StartedWorks: the collectives that a step has started, and the first of their errors.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "lockstep/error.hpp"
#include "lockstep/work.hpp"

namespace lockstep::internal {

/// One thread at a time.
class StartedWorks {
 public:
  void reserve(std::size_t count) { works_.reserve(count); }

  /// Keeps the Work that `begin()` returns, or its error. After an error nothing more begins.
  template <typename Begin>
  void start(Begin begin) noexcept {
    if (failure_) return;
    try {
      works_.push_back(begin());
    } catch (const Error& error) {
      failure_ = error;
    }
  }

  /// Waits for the one that was started as number `index`, from 0. Throws its error, or why it never began.
  void await(std::size_t index) {
    if (index < works_.size()) return works_[index].wait();
    if (failure_) throw *failure_;
  }

  /// Returns when none runs any more, with the first error. Ready for the next step.
  std::optional<Error> finish() {
    for (Work& work : works_) {
      try {
        work.wait();
      } catch (const Error& error) {
        if (!failure_) failure_ = error;
      }
    }
    works_.clear();
    return std::exchange(failure_, std::nullopt);
  }

 private:
  std::vector<Work> works_;
  std::optional<Error> failure_;
};

}  // namespace lockstep::internal
