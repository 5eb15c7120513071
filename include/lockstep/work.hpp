// Work: the handle of an operation in flight.
#pragma once

#include <chrono>

#include "lockstep/export.hpp"

namespace lockstep {

enum class ErrorCode : int;
struct RecvStatus;

namespace internal {
class Operation;
class CommunicatorCore;
}  // namespace internal

/// Handle of an operation in flight. Dropping it leaves the operation running and the library holding what it
/// needs; the buffers must then stay valid until the communicator is finalized, aborted or destroyed.
/// Movable; one handle is used by one thread at a time.
class LOCKSTEP_API Work {
 public:
  Work() noexcept = default;  ///< Done, ok.
  Work(Work&& other) noexcept;
  Work& operator=(Work&& other) noexcept;
  ~Work();

  /// Blocks until the operation ended; makes progress in this thread. Throws its Error, each time.
  void wait();
  /// Waits at most `limit`. True when it ended (throws its Error). False leaves the operation running.
  bool wait_for(std::chrono::microseconds limit);
  /// True when it ended, with or without error. Makes progress; never throws.
  bool test() noexcept;
  /// ok while running or succeeded.
  ErrorCode error() const noexcept;
  /// Of a receive that ended well; of anything else {-1, -1, 0}.
  RecvStatus status() const;

  /// For the library's own layers: takes over one reference.
  explicit Work(internal::Operation* operation) noexcept : operation_(operation) {}
  internal::Operation* operation() const noexcept { return operation_; }

 private:
  internal::Operation* operation_ = nullptr;
};

}  // namespace lockstep
