#include "lib/bootstrap/store_table.hpp"

#include <charconv>

#include "lib/bootstrap/limits.hpp"

namespace lockstep::internal {
namespace {

constexpr std::size_t kKeysNamed = 8;  // In an error; more would hide the cause.

Status check_key(std::string_view key) {
  if (key.empty()) return Status(ErrorCode::invalid_argument, "a key of the store is empty");
  if (key.size() <= kMaxKeyBytes) return Status();
  return Status(ErrorCode::invalid_argument, "a key of the store has " + std::to_string(key.size()) +
                                                 " bytes, at most " + std::to_string(kMaxKeyBytes) +
                                                 " are allowed");
}

}  // namespace

Status StoreTable::set(std::span<const Store::Entry> entries) {
  std::size_t new_keys = 0;
  std::size_t new_bytes = 0;  // An upper bound: what is overwritten is not deducted.
  for (const Store::Entry& entry : entries) {
    LOCKSTEP_RETURN_IF_ERROR(check_entry(entry));
    if (find(entry.first) == nullptr) ++new_keys;
    new_bytes += entry.first.size() + entry.second.size();
  }
  if (entries_.size() + new_keys > kMaxKeys) {
    return Status(ErrorCode::out_of_memory,
                  "the store is full: it holds at most " + std::to_string(kMaxKeys) + " keys");
  }
  if (bytes_ + new_bytes > kMaxTotalBytes) {
    return Status(ErrorCode::out_of_memory,
                  "the store is full: it holds at most " + std::to_string(kMaxTotalBytes) + " bytes");
  }
  for (const Store::Entry& entry : entries) {
    const auto [place, inserted] = entries_.try_emplace(entry.first);
    bytes_ += (inserted ? entry.first.size() : 0) + entry.second.size() - place->second.size();
    place->second = entry.second;
  }
  return Status();
}

Result<std::int64_t> StoreTable::add(std::string_view key, std::int64_t delta) {
  std::int64_t sum = 0;
  if (const std::string* text = find(key)) {
    const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), sum);
    if (error != std::errc() || end != text->data() + text->size()) {
      return Status(ErrorCode::invalid_argument,
                    "the value of \"" + std::string(key) + "\" in the store is not a number");
    }
  }
  if (__builtin_add_overflow(sum, delta, &sum)) {
    return Status(ErrorCode::invalid_argument,
                  "the number at \"" + std::string(key) + "\" in the store overflows");
  }
  const Store::Entry entry{std::string(key), std::to_string(sum)};
  LOCKSTEP_RETURN_IF_ERROR(set({&entry, 1}));
  return sum;
}

void StoreTable::erase(std::string_view prefix) {
  auto entry = entries_.lower_bound(prefix);
  while (entry != entries_.end() && entry->first.starts_with(prefix)) {
    bytes_ -= entry->first.size() + entry->second.size();
    entry = entries_.erase(entry);
  }
}

const std::string* StoreTable::find(std::string_view key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

bool StoreTable::has_all(std::span<const std::string> keys) const {
  for (const std::string& key : keys) {
    if (find(key) == nullptr) return false;
  }
  return true;
}

std::vector<bool> StoreTable::which(std::span<const std::string> keys) const {
  std::vector<bool> present;
  present.reserve(keys.size());
  for (const std::string& key : keys) present.push_back(find(key) != nullptr);
  return present;
}

std::vector<std::string> StoreTable::values(std::span<const std::string> keys) const {
  std::vector<std::string> values;
  values.reserve(keys.size());
  for (const std::string& key : keys) values.push_back(*find(key));
  return values;
}

Status check_entry(const Store::Entry& entry) {
  LOCKSTEP_RETURN_IF_ERROR(check_key(entry.first));
  if (entry.second.size() <= kMaxValueBytes) return Status();
  return Status(ErrorCode::invalid_argument,
                "the value of \"" + entry.first + "\" has " + std::to_string(entry.second.size()) +
                    " bytes, at most " + std::to_string(kMaxValueBytes) + " are allowed in the store");
}

Status check_keys(std::span<const std::string> keys) {
  for (const std::string& key : keys) LOCKSTEP_RETURN_IF_ERROR(check_key(key));
  if (keys.size() <= kMaxKeys) return Status();
  return Status(ErrorCode::invalid_argument, "one request to the store asks for " +
                                                 std::to_string(keys.size()) + " keys, at most " +
                                                 std::to_string(kMaxKeys) + " are allowed");
}

Status missing_keys_error(std::span<const std::string> keys, const std::vector<bool>& present) {
  std::string names;
  std::size_t missing = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (present[i]) continue;
    if (missing++ < kKeysNamed) names += (names.empty() ? "\"" : ", \"") + keys[i] + "\"";
  }
  if (missing > kKeysNamed) names += " and " + std::to_string(missing - kKeysNamed) + " more";
  return Status(ErrorCode::timeout, "no rank has set " + names + " in the store in time");
}

}  // namespace lockstep::internal
