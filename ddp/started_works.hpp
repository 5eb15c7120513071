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

  /// The step has failed; the first error counts.
  void fail(const Error& error) {
    if (!failure_) failure_ = error;
  }
  bool failed() const { return failure_.has_value(); }

  /// Waits for the one that was started as number `index`, from 0. Throws its error, or why it never began.
  void await(std::size_t index) {
    if (index < works_.size()) return works_[index].wait();
    if (failure_) throw *failure_;
  }

  /// Those that nobody has waited for, and whether the first of them is done.
  std::size_t in_flight() const { return works_.size() - ended_; }
  bool first_done() { return in_flight() > 0 && works_[ended_].test(); }
  /// Waits for the first of them and keeps its error. Returns its number.
  std::size_t await_first() {
    Work first = std::move(works_[ended_]);
    try {
      first.wait();
    } catch (const Error& error) {
      fail(error);
    }
    return ended_++;
  }

  /// Returns when none runs any more, with the first error. Ready for the next step.
  std::optional<Error> finish() {
    while (in_flight() > 0) await_first();
    works_.clear();
    ended_ = 0;
    return std::exchange(failure_, std::nullopt);
  }

 private:
  std::vector<Work> works_;
  std::size_t ended_ = 0;  // The first so many were waited for one by one, and are gone.
  std::optional<Error> failure_;
};

}  // namespace lockstep::internal
