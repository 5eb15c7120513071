// The C handles, and the wall that no exception passes.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "lockstep/lockstep.h"
#include "lockstep/lockstep.hpp"
#include "lockstep/rendezvous.hpp"

struct lockstep_comm {
  lockstep::Communicator communicator;
};
struct lockstep_rendezvous {
  lockstep::Rendezvous rendezvous;
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

/// Remembers a failure for lockstep_last_error() of this thread, without its text where memory has run out.
lockstep_error_t remember(ErrorCode code, const char* text, int culprit) noexcept;

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
  } catch (...) {
    return remember(ErrorCode::internal, "an exception of unknown type", -1);
  }
}

/// Throws Error(invalid_argument) for a null handle or result pointer.
template <typename T>
T& required(T* pointer, const char* what) {
  if (pointer == nullptr) throw Error(ErrorCode::invalid_argument, std::string(what) + " is NULL");
  return *pointer;
}

CallOptions to_options(const lockstep_options_t* options);

/// An enumerator of `To`, or one that is none: a number that does not fit must not wrap to one that is. The
/// call is then refused in its place in the order, so that the peers are told.
template <typename To, typename From>
To to_enum(From value) {
  constexpr unsigned kNone = 255;
  return static_cast<To>(std::min(static_cast<unsigned>(value), kNone));
}
inline DataType to_type(lockstep_type_t type) { return to_enum<DataType>(type); }
inline ReduceOp to_op(lockstep_op_t op) { return to_enum<ReduceOp>(op); }

/// Ends a call: hands the work out, or waits for it when `out` is null.
void hand_out(Work work, lockstep_work_t* out);

}  // namespace lockstep::internal
