// StoreTable: keys and values of one store, within the limits of lib/bootstrap/limits.hpp. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/status.hpp"
#include "lib/bootstrap/store.hpp"

namespace lockstep::internal {

class StoreTable {
 public:
  /// Sets all entries or, on an error, none.
  Status set(std::span<const Store::Entry> entries);
  /// The sum after adding `delta` to the decimal number at `key` (0 when absent).
  Result<std::int64_t> add(std::string_view key, std::int64_t delta);
  /// Removes all keys that begin with `prefix`.
  void erase(std::string_view prefix);
  /// nullptr when absent. Valid until the next change.
  const std::string* find(std::string_view key) const;

  bool has_all(std::span<const std::string> keys) const;
  std::vector<bool> which(std::span<const std::string> keys) const;
  /// Values of keys that all exist.
  std::vector<std::string> values(std::span<const std::string> keys) const;

 private:
  std::map<std::string, std::string, std::less<>> entries_;
  std::size_t bytes_ = 0;
};

/// Whether this may be set, and whether these may be asked for, at all.
Status check_entry(const Store::Entry& entry);
Status check_keys(std::span<const std::string> keys);

/// ErrorCode::timeout that names the keys that are absent (`present` is what wait() returned).
Status missing_keys_error(std::span<const std::string> keys, const std::vector<bool>& present);

}  // namespace lockstep::internal
