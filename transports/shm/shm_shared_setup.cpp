#include "transports/shm/shm_shared_setup.hpp"

#include <map>

namespace lockstep::internal {

std::shared_ptr<ShmSharedSetup> ShmSharedSetup::of(std::uint64_t id, std::size_t size) {
  static std::mutex mutex;
  // Never destroyed: ranks may outlive static objects.
  static auto& live = *new std::map<std::uint64_t, std::weak_ptr<ShmSharedSetup>>;
  std::lock_guard lock(mutex);
  if (auto known = live[id].lock()) return known->slots_.size() == size ? known : nullptr;
  std::erase_if(live, [](const auto& entry) { return entry.second.expired(); });
  auto fresh = std::make_shared<ShmSharedSetup>(size);
  live[id] = fresh;
  return fresh;
}

void ShmSharedSetup::enter(int member, const Attachment& attachment) {
  std::lock_guard lock(mutex_);
  slot(member).attachment = attachment;
  slot(member).known.notify_all();
}

bool ShmSharedSetup::claim(int member) {
  std::lock_guard lock(mutex_);
  return !std::exchange(slot(member).claimed, true);
}

void ShmSharedSetup::give_up(int member) {
  std::lock_guard lock(mutex_);
  slot(member).claimed = false;
}

std::optional<Attachment> ShmSharedSetup::await(int member, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  slot(member).known.wait_for(lock, patience, [&] { return slot(member).attachment.has_value(); });
  return slot(member).attachment;
}

}  // namespace lockstep::internal
