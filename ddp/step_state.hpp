// StepState: what a reducer knows of the step under way.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "ddp/step_record.hpp"

namespace lockstep::internal {

/// What other threads touch during backward is atomic or theirs by parameter.
struct StepState {
  std::atomic<std::uint64_t> number{1};
  std::atomic<bool> marked{false};
  bool closed = false;  // In wait(): no mark counts any more. Under the reducer's mutex.
  TroubleNote trouble;
  std::atomic<bool> cut_short{false};      // A mark had no memory for its effect, which comes no more.
  std::vector<std::uint8_t> has_gradient;  // By parameter: this rank has one. Others count as zero.
  std::vector<std::uint8_t> paused;  // By parameter: that was so under no_sync, since the last good step.
  std::vector<std::size_t> missing;  // Should have been marked.
  std::uint64_t wrong_elements = 0;  // Of a hook's wrong result.
  bool opened = false;               // begin_step was called.
  bool shadowing = false;            // This rank has no data.
  bool average = true;               // Divide by the world size.
  double factor = 1;                 // Multiplies this rank's gradients before they are summed.
  std::atomic<int> pauses{0};        // NoSyncs alive; they may outlive the step.
  std::atomic<int> noting{0};        // Marks that have found one alive, and are at it.

  /// Any thread, and several of one parameter.
  void note_gradient(std::size_t i) { std::atomic_ref(has_gradient[i]).store(1, std::memory_order_relaxed); }
  /// Takes note of a mark where a NoSync lives, which does not end meanwhile, and runs `first` before. False
  /// where none lives: the mark is one of what follows.
  template <typename First>
  bool note_if_paused(std::size_t i, First first) {
    if (pauses == 0) return false;
    const Noting at_it(*this);
    if (pauses == 0) return false;
    first();
    note_paused(i);
    return true;
  }
  void end_pause() noexcept;
  /// Under no_sync. After begin_step(0) none takes part.
  void note_paused(std::size_t i) {
    if (shadowing) return;
    std::atomic_ref(paused[i]).store(1, std::memory_order_relaxed);
    note_gradient(i);
  }
  /// There are as many parameters from now on.
  void resize(std::size_t parameters);
  /// The gradients so far count for nothing, or have been sent.
  void forget_gradients();
  std::string name() const { return "step " + std::to_string(number.load()); }
  /// Before the first mark. Throws Error(invalid_argument) where this step takes none, or none yet.
  void require_marks_allowed(bool weighted) const;
  /// Throws Error(invalid_argument) in the midst of a step, or while NoSyncs live.
  void require_ended(const char* call) const;
  /// Nothing is marked, opened or wrong; the number stays, and so does what was noted under no_sync.
  void restart(bool averages);

 private:
  struct Noting {
    explicit Noting(StepState& of) : step(of) { ++step.noting; }
    ~Noting() { --step.noting; }
    StepState& step;
  };
};

}  // namespace lockstep::internal
