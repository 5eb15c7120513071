// The C handles, and the wall that no exception passes.
#pragma once

#include <string>
#include <utility>

#include "lockstep/lockstep.h"
#include "lockstep/lockstep.hpp"

struct lockstep_comm {
  lockstep::Communicator communicator;
};
struct lockstep_work {
  lockstep::Work work;
};
struct lockstep_plan {
  lockstep::Plan plan;
};
struct lockstep_batch {
  lockstep::Batch batch;
};

namespace lockstep::internal {

/// Remembers a failure for lockstep_last_error() of this thread.
lockstep_error_t remember(ErrorCode code, std::string text, int culprit) noexcept;

/// Runs `body`; whatever it throws becomes a code and a text.
template <typename Body>
lockstep_error_t guarded(Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return LOCKSTEP_OK;
  } catch (const Error& error) {
    return remember(error.code(), error.what(), error.culprit());
  } catch (const std::bad_alloc&) {
    return remember(ErrorCode::out_of_memory, "out of memory", -1);
  } catch (const std::exception& error) {
    return remember(ErrorCode::internal, error.what(), -1);
  }
}

/// Throws Error(invalid_argument) for a null handle or result pointer.
template <typename T>
T& required(T* pointer, const char* what) {
  if (pointer == nullptr) throw Error(ErrorCode::invalid_argument, std::string(what) + " is NULL");
  return *pointer;
}

CallOptions to_options(const lockstep_options_t* options);
inline DataType to_type(lockstep_type_t type) { return static_cast<DataType>(type); }
inline ReduceOp to_op(lockstep_op_t op) { return static_cast<ReduceOp>(op); }

/// Ends a call: hands the work out, or waits for it when `out` is null.
void hand_out(Work work, lockstep_work_t* out);

}  // namespace lockstep::internal
