// GroupStore: one group's part of a store in which several meet, one after another or side by side.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lib/bootstrap/store.hpp"

namespace lockstep::internal {

/// What all keys of group `number` begin with: "2/".
std::string group_prefix(std::uint64_t number);

/// The store seen by one group: its keys without their prefix.
class GroupStore final : public Store {
 public:
  GroupStore(std::shared_ptr<Store> whole, std::uint64_t number)
      : whole_(std::move(whole)), number_(number), prefix_(group_prefix(number)) {}

  /// Which group it is.
  std::uint64_t number() const { return number_; }
  /// What all groups see.
  Store& whole() { return *whole_; }
  GroupStore of_group(std::uint64_t number) const { return GroupStore(whole_, number); }

  Status set(std::span<const Entry> entries) override;
  Result<std::vector<std::string>> get(std::span<const std::string> keys,
                                       std::chrono::milliseconds timeout) override;
  Result<std::vector<bool>> wait(std::span<const std::string> keys,
                                 std::chrono::milliseconds timeout) override;
  Result<std::int64_t> add(std::string_view key, std::int64_t delta) override;
  void be_patient_until(Nanos when) override { whole_->be_patient_until(when); }

 private:
  std::vector<std::string> prefixed(std::span<const std::string> keys) const;

  std::shared_ptr<Store> whole_;
  std::uint64_t number_;
  std::string prefix_;
};

}  // namespace lockstep::internal
