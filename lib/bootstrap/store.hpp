// Store: the small key-value meeting place of a job.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lib/base/env.hpp"
#include "lib/base/status.hpp"
#include "lib/bootstrap/limits.hpp"

namespace lockstep::internal {

/// Hears now and then, every few seconds at least, why a store is still waited for.
using WhileWaiting = std::function<void(const Status& why)>;

/// Thread-safe. Keys at most kMaxKeyBytes, values at most kMaxValueBytes (lib/bootstrap/limits.hpp).
///
/// A store may itself be late: the process that serves it is stopped, or another rank is while it has the
/// file locked. A call waits kStorePatience for that, and then ends with ErrorCode::timeout too: what it was
/// to change may be changed or not.
class Store {
 public:
  virtual ~Store() = default;
  using Entry = std::pair<std::string, std::string>;

  /// Sets all entries in one exchange; an existing key is overwritten.
  virtual Status set(std::span<const Entry> entries) = 0;
  /// Waits until all keys exist and returns their values in order. ErrorCode::timeout names the keys that are
  /// missing.
  virtual Result<std::vector<std::string>> get(std::span<const std::string> keys,
                                               std::chrono::milliseconds timeout) = 0;
  /// As get without the values: which of `keys` exist after at most `timeout` (all of them: returns at once).
  virtual Result<std::vector<bool>> wait(std::span<const std::string> keys,
                                         std::chrono::milliseconds timeout) = 0;
  /// Adds `delta` to the integer at `key` (0 when absent) and returns the sum.
  virtual Result<std::int64_t> add(std::string_view key, std::int64_t delta) = 0;

  Status set_one(std::string key, std::string value) {
    Entry entry{std::move(key), std::move(value)};
    return set({&entry, 1});
  }
  Result<std::string> get_one(const std::string& key, std::chrono::milliseconds timeout) {
    auto values = get({&key, 1}, timeout);
    if (!values.ok()) return values.status();
    return std::move(values->front());
  }

  /// While a start is under way, which ends at `when`, all calls wait for a late store until then and for
  /// kLastMoment: the start waits so long for ranks as well, and adds what must not be added twice. Who
  /// opened it for that start hears (WhileWaiting) once one is later than kLateAfter. 0: no start is.
  virtual void be_patient_until(Nanos when) { patient_until_ = when; }

 protected:
  /// How long a call waits that else would for `patience`.
  std::chrono::milliseconds patience_at(Nanos now, std::chrono::milliseconds patience) const {
    constexpr Nanos kPerMilli = 1'000'000;
    const Nanos until = patient_until_;
    if (until == 0) return patience;
    return std::max(std::chrono::milliseconds((until - now) / kPerMilli) + kLastMoment,
                    std::chrono::milliseconds(0));
  }

  bool is_patient(Nanos now) const { return now < patient_until_; }

 private:
  std::atomic<Nanos> patient_until_{0};
};

}  // namespace lockstep::internal
