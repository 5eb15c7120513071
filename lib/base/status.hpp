// Status and Result: errors as values. Everything below the public surface returns these and throws nothing.
#pragma once

#include <cassert>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/error.hpp"

namespace lockstep::internal {

/// ok, or a code with a message that names the cause and the next step, and the rank to blame when there is
/// one. Success is a null pointer: it costs nothing to pass on, which the path of small messages feels.
class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  /// `code` is not ok.
  Status(ErrorCode code, std::string message, int culprit = -1)
      : error_(new Failure{code, culprit, std::move(message)}) {
    assert(code != ErrorCode::ok);
  }
  Status(const Status& other) : error_(other.ok() ? nullptr : new Failure(*other.error_)) {}
  Status(Status&&) noexcept = default;
  Status& operator=(const Status& other) { return *this = Status(other); }
  Status& operator=(Status&&) noexcept = default;
  ~Status() = default;

  bool ok() const noexcept { return error_ == nullptr; }
  ErrorCode code() const noexcept { return ok() ? ErrorCode::ok : error_->code; }
  int culprit() const noexcept { return ok() ? -1 : error_->culprit; }
  const std::string& message() const noexcept { return ok() ? kNoMessage : error_->message; }

  /// The same error with words in front: "while connecting to rank 3: ...".
  Status with_context(const std::string& context) const {
    return ok() ? Status() : Status(error_->code, context + ": " + error_->message, error_->culprit);
  }
  /// The same error as `rank`'s fault, but for what this process lacks itself.
  Status blamed_on(int rank) const { return is_own_lack() ? *this : Status(code(), message(), rank); }
  /// Memory or descriptors that this process does not have, and nobody to blame yet.
  bool is_own_lack() const noexcept {
    return culprit() < 0 && (code() == ErrorCode::system || code() == ErrorCode::out_of_memory);
  }
  /// Leaves the world of values: throws lockstep::Error unless ok.
  void throw_if_error() const {
    if (!ok()) throw Error(error_->code, error_->message, error_->culprit);
  }

 private:
  struct Failure {
    ErrorCode code;
    int culprit;
    std::string message;
  };
  static inline const std::string kNoMessage;
  std::unique_ptr<const Failure> error_;
};

/// ErrorCode::system, for ENOMEM out_of_memory, with errno's text: "<what>: <strerror>".
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
