// StartedWorks: the collectives that a step has started, and the first of their errors.
#pragma once

#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "collectives/communicator_core.hpp"
#include "lockstep/communicator.hpp"
#include "lockstep/error.hpp"
#include "lockstep/work.hpp"

namespace lockstep::internal {

/// One thread at a time.
class StartedWorks {
 public:
  explicit StartedWorks(Communicator& communicator)
      : communicator_(communicator),
        no_memory_(ErrorCode::out_of_memory,
                   "rank " + std::to_string(communicator.rank()) + " has no memory to start a bucket",
                   communicator.rank()) {}

  void reserve(std::size_t count) { works_.reserve(count); }

  /// Keeps the Work that `begin()` returns, or its error. After an error nothing more begins.
  template <typename Begin>
  void start(Begin begin) noexcept {
    if (failure_) return;
    try {
      if (works_.size() == works_.capacity()) works_.reserve(2 * works_.size() + 1);  // What begins is kept.
      works_.push_back(begin());
    } catch (const Error& error) {
      failure_ = error;
    } catch (const std::bad_alloc&) {
      failure_ = no_memory_;  // A copy takes none.
      alone_ = true;
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

  /// Returns when none runs any more, with the first error. Ready for the next step. The peers are told of
  /// what they do not know: they wait for what never began.
  std::optional<Error> finish() {
    if (alone_) {
      communicator_.core().engine().request_revoke(
          Status(no_memory_.code(), no_memory_.what(), no_memory_.culprit()));
      alone_ = false;
    }
    while (in_flight() > 0) await_first();
    works_.clear();
    ended_ = 0;
    return std::exchange(failure_, std::nullopt);
  }

 private:
  Communicator& communicator_;
  const Error no_memory_;  // Made while there is some.
  bool alone_ = false;     // The failure is that, and the peers were not told yet.
  std::vector<Work> works_;
  std::size_t ended_ = 0;  // The first so many were waited for one by one, and are gone.
  std::optional<Error> failure_;
};

}  // namespace lockstep::internal
