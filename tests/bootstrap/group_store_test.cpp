// A group's part of a store, where the store is slow.
#include "lib/bootstrap/group_store.hpp"

#include <gtest/gtest.h>

#include "lib/bootstrap/memory_store.hpp"

namespace lockstep::internal {
namespace {

using std::chrono::milliseconds;

/// Whoever gets a key in vain sees it set a moment later.
class StoreOfTheLate final : public Store {
 public:
  Status set(std::span<const Entry> entries) override { return store_->set(entries); }
  Result<std::vector<std::string>> get(std::span<const std::string> keys, milliseconds timeout) override {
    auto values = store_->get(keys, timeout);
    if (!values.ok()) {
      EXPECT_TRUE(store_->set_one(keys.front(), "late").ok());
    }
    return values;
  }
  Result<std::vector<bool>> wait(std::span<const std::string> keys, milliseconds timeout) override {
    return store_->wait(keys, timeout);
  }
  Result<std::int64_t> add(std::string_view key, std::int64_t delta) override {
    return store_->add(key, delta);
  }

 private:
  const std::unique_ptr<Store> store_ = open_memory_store("of the late");
};

TEST(GroupStore, WhatCameWhileMissingKeysWereLookedForIsNotMissing) {
  GroupStore group(std::make_unique<StoreOfTheLate>(), 3);
  EXPECT_EQ(group.get_one("x", milliseconds(0)).value(), "late");
  const std::vector<std::string> keys{"y", "z"};
  EXPECT_EQ(group.get(keys, milliseconds(0)).status().message(),
            "no rank has set \"z\" in the store in time");
}

}  // namespace
}  // namespace lockstep::internal
