#include "lib/bootstrap/memory_store.hpp"

#include <condition_variable>
#include <map>
#include <mutex>

#include "lib/bootstrap/deadline.hpp"
#include "lib/bootstrap/store_table.hpp"

namespace lockstep::internal {
namespace {

struct SharedTable {
  std::mutex mutex;
  std::condition_variable changed;
  StoreTable table;
};

std::shared_ptr<SharedTable> shared_table(const std::string& name) {
  static std::mutex mutex;
  // Outlives every static store.
  static auto* tables = new std::map<std::string, std::weak_ptr<SharedTable>>;
  std::lock_guard lock(mutex);
  std::erase_if(*tables, [](const auto& entry) { return entry.second.expired(); });
  auto table = (*tables)[name].lock();
  if (!table) (*tables)[name] = table = std::make_shared<SharedTable>();
  return table;
}

class MemoryStore final : public Store {
 public:
  explicit MemoryStore(const std::string& name) : shared_(shared_table(name)) {}

  Status set(std::span<const Entry> entries) override {
    std::lock_guard lock(shared_->mutex);
    LOCKSTEP_RETURN_IF_ERROR(shared_->table.set(entries));
    shared_->changed.notify_all();
    return Status();
  }

  Result<std::vector<std::string>> get(std::span<const std::string> keys,
                                       std::chrono::milliseconds timeout) override {
    LOCKSTEP_RETURN_IF_ERROR(check_keys(keys));
    std::unique_lock lock(shared_->mutex);
    if (!await(lock, keys, timeout)) return missing_keys_error(keys, shared_->table.which(keys));
    return shared_->table.values(keys);
  }

  Result<std::vector<bool>> wait(std::span<const std::string> keys,
                                 std::chrono::milliseconds timeout) override {
    LOCKSTEP_RETURN_IF_ERROR(check_keys(keys));
    std::unique_lock lock(shared_->mutex);
    await(lock, keys, timeout);
    return shared_->table.which(keys);
  }

  Result<std::int64_t> add(std::string_view key, std::int64_t delta) override {
    std::lock_guard lock(shared_->mutex);
    auto sum = shared_->table.add(key, delta);
    if (sum.ok()) shared_->changed.notify_all();
    return sum;
  }

 private:
  bool await(std::unique_lock<std::mutex>& lock, std::span<const std::string> keys,
             std::chrono::milliseconds timeout) {
    const Deadline deadline(real_env(), timeout);
    while (!shared_->table.has_all(keys)) {
      if (deadline.passed()) return false;
      shared_->changed.wait_for(lock, std::chrono::milliseconds(deadline.poll_timeout()));
    }
    return true;
  }

  std::shared_ptr<SharedTable> shared_;
};

}  // namespace

std::unique_ptr<Store> open_memory_store(const std::string& name) {
  return std::make_unique<MemoryStore>(name);
}

}  // namespace lockstep::internal
