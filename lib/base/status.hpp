// Status and Result: errors as values. Everything below the public surface returns these and throws nothing.
#pragma once

#include <atomic>
#include <cassert>
#include <cstdint>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "lockstep/error.hpp"

namespace lockstep::internal {

/// ok, or a code with a message that names the cause and the next step, and the rank to blame when there is
/// one. Copies share the message, so that an error can be passed on where memory has run out. Success is a
/// zero: it costs nothing to pass on, which the path of small messages feels.
class [[nodiscard]] Status {
 public:
  Status() noexcept = default;
  /// `code` is not ok. Without memory to keep its words an error still has its code and its culprit.
  Status(ErrorCode code, std::string message, int culprit = -1) noexcept;
  Status(const Status& other) noexcept : word_(other.word_) {
    if (has_words()) failure()->owners.fetch_add(1, std::memory_order_relaxed);
  }
  Status(Status&& other) noexcept : word_(std::exchange(other.word_, 0)) {}
  Status& operator=(Status other) noexcept {
    std::swap(word_, other.word_);
    return *this;
  }
  ~Status() {
    if (has_words()) release();
  }

  bool ok() const noexcept { return word_ == 0; }
  ErrorCode code() const noexcept {
    return has_words() ? failure()->code : static_cast<ErrorCode>(word_ >> 1 & 0x7fffffff);
  }
  int culprit() const noexcept {
    return has_words() ? failure()->culprit : ok() ? -1 : static_cast<std::int32_t>(word_ >> 32);
  }
  const std::string& message() const noexcept { return has_words() ? failure()->message : kNoMessage; }

  /// The same error with words in front: "while connecting to rank 3: ...".
  Status with_context(const std::string& context) const {
    return ok() ? Status() : Status(code(), context + ": " + message(), culprit());
  }
  /// The same error as `rank`'s fault, but for what this process lacks itself.
  Status blamed_on(int rank) const { return is_own_lack() ? *this : Status(code(), message(), rank); }
  /// Memory or descriptors that this process does not have, and nobody to blame yet.
  bool is_own_lack() const noexcept {
    return culprit() < 0 && (code() == ErrorCode::system || code() == ErrorCode::out_of_memory);
  }
  /// That, or what a device refused that this process uses.
  bool is_of_this_process() const noexcept {
    return is_own_lack() || (culprit() < 0 && code() == ErrorCode::device_failed);
  }
  /// Leaves the world of values: throws lockstep::Error unless ok.
  void throw_if_error() const {
    if (!ok()) throw Error(code(), message(), culprit());
  }

 private:
  struct Failure {
    std::atomic<std::uint32_t> owners;
    ErrorCode code;
    int culprit;
    std::string message;
  };
  bool has_words() const noexcept { return word_ != 0 && (word_ & 1) == 0; }
  Failure* failure() const noexcept { return reinterpret_cast<Failure*>(word_); }
  void release() noexcept;

  static inline const std::string kNoMessage;
  /// 0, or a Failure's address; or, odd, an error without words: its code from bit 1 on, its culprit from 32
  /// on.
  std::uint64_t word_ = 0;
};

/// The code of this number, as another process may have sent it; nothing where there is none.
inline std::optional<ErrorCode> error_code(std::int64_t number) noexcept {
  constexpr auto kLast = static_cast<std::int64_t>(ErrorCode::device_failed);
  if (number < 0 || number > kLast) return std::nullopt;
  return static_cast<ErrorCode>(number);
}

/// What `say` returns, or nothing where there is no memory for it: for errors that must be told all the same.
template <typename Say>
std::string words_of(Say&& say) try {
  return say();
} catch (const std::bad_alloc&) {
  return {};
}

/// ErrorCode::system, for ENOMEM out_of_memory: "<what>: <strerror>", and of EMFILE what to do.
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
