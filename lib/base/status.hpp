// Status and Result: errors as values. Everything below the public surface returns these and throws nothing.
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/error.hpp"

namespace lockstep::internal {

/// ok, or a code with a message that names the cause and the next step, and the rank to blame when there is
/// one.
class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  Status(ErrorCode code, std::string message, int culprit = -1)
      : code_(code), culprit_(culprit), message_(std::move(message)) {}

  bool ok() const noexcept { return code_ == ErrorCode::ok; }
  ErrorCode code() const noexcept { return code_; }
  int culprit() const noexcept { return culprit_; }
  const std::string& message() const noexcept { return message_; }

  /// The same error with words in front: "while connecting to rank 3: ...".
  Status with_context(const std::string& context) const {
    return ok() ? Status() : Status(code_, context + ": " + message_, culprit_);
  }
  /// Leaves the world of values: throws lockstep::Error unless ok.
  void throw_if_error() const {
    if (!ok()) throw Error(code_, message_, culprit_);
  }

 private:
  ErrorCode code_ = ErrorCode::ok;
  int culprit_ = -1;
  std::string message_;
};

/// ErrorCode::system with errno's text: "<what>: <strerror>".
Status system_error(const std::string& what, int error_number);

/// A value or an error.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Status status) : status_(std::move(status)) { assert(!status_.ok()); }

  bool ok() const noexcept { return value_.has_value(); }
  const Status& status() const noexcept { return status_; }
  T& value() { return *value_; }
  const T& value() const { return *value_; }
  T& operator*() { return *value_; }
  T* operator->() { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

/// Returns the error of `expression` (a Status) from the enclosing function.
#define LOCKSTEP_RETURN_IF_ERROR(expression)                                                \
  do {                                                                                      \
    if (auto lockstep_status = (expression); !lockstep_status.ok()) return lockstep_status; \
  } while (false)

}  // namespace lockstep::internal
