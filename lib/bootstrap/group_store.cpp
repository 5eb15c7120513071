#include "lib/bootstrap/group_store.hpp"

#include <algorithm>

#include "lib/bootstrap/store_table.hpp"

namespace lockstep::internal {

std::string group_prefix(std::uint64_t number) { return std::to_string(number) + "/"; }

std::vector<std::string> GroupStore::prefixed(std::span<const std::string> keys) const {
  std::vector<std::string> names;
  names.reserve(keys.size());
  for (const std::string& key : keys) names.push_back(prefix_ + key);
  return names;
}

Status GroupStore::set(std::span<const Entry> entries) {
  std::vector<Entry> named;
  named.reserve(entries.size());
  for (const auto& [key, value] : entries) named.emplace_back(prefix_ + key, value);
  return whole_->set(named);
}

Result<std::vector<std::string>> GroupStore::get(std::span<const std::string> keys,
                                                 std::chrono::milliseconds timeout) {
  const std::vector<std::string> names = prefixed(keys);
  auto values = whole_->get(names, timeout);
  if (values.ok() || values.status().code() != ErrorCode::timeout) return values;
  // The missing are named as the caller knows them.
  const auto present = whole_->wait(names, std::chrono::milliseconds(0));
  if (!present.ok()) return present.status();
  if (std::find(present.value().begin(), present.value().end(), false) == present.value().end())
    return whole_->get(names, std::chrono::milliseconds(0));
  return missing_keys_error(keys, present.value());
}

Result<std::vector<bool>> GroupStore::wait(std::span<const std::string> keys,
                                           std::chrono::milliseconds timeout) {
  return whole_->wait(prefixed(keys), timeout);
}

Result<std::int64_t> GroupStore::add(std::string_view key, std::int64_t delta) {
  return whole_->add(prefix_ + std::string(key), delta);
}

}  // namespace lockstep::internal
