// What goes wrong, in NCCL's terms: a code from the call, a sentence from ncclGetLastError.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "integrations/nccl/abi.hpp"
#include "lockstep/error.hpp"

namespace lockstep::nccl {

/// Thrown inside this library only.
class Refusal : public std::exception {
 public:
  Refusal(ncclResult_t result, std::string text) : result_(result), text_(std::move(text)) {}
  ncclResult_t result() const noexcept { return result_; }
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  ncclResult_t result_;
  std::string text_;
};

inline Refusal invalid_argument(std::string text) { return {ncclInvalidArgument, std::move(text)}; }
inline Refusal invalid_usage(std::string text) { return {ncclInvalidUsage, std::move(text)}; }

/// Table in docs/nccl.md.
ncclResult_t to_result(ErrorCode code) noexcept;

/// Keeps "`function`: `text`" for ncclGetLastError of this thread and, unless it has one of its own, of any
/// other; gives `result` back.
ncclResult_t remember(ncclResult_t result, const char* function, const char* text) noexcept;
/// The last text of this thread, else of the process; empty when nothing went wrong.
std::string last_text();

/// The exception that is being handled, as a code; its text is remembered.
ncclResult_t handle_exception(const char* function) noexcept;

/// Runs the body of an exported function: no exception leaves it. `body` returns ncclResult_t or nothing.
template <typename Body>
ncclResult_t guarded(const char* function, Body&& body) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return ncclSuccess;
    } else {
      return body();
    }
  } catch (...) {
    return handle_exception(function);
  }
}

/// `*pointer`, which the caller has to give.
template <typename T>
T& required(T* pointer, const char* name) {
  if (pointer == nullptr) throw invalid_argument(std::string(name) + " is NULL");
  return *pointer;
}

}  // namespace lockstep::nccl
