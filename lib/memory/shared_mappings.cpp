#include "lib/memory/shared_mappings.hpp"

#include <cerrno>
#include <map>
#include <mutex>
#include <utility>

#include "lib/net/file_identity.hpp"

namespace lockstep::internal {
namespace {

// A memory lives while it is mapped, and its inode's number is nobody else's as long.
class Live {
 public:
  // Never destroyed: the last user may be a static object.
  static Live& instance() {
    static Live* live = new Live;
    return *live;
  }

  SharedMapping find(const FileIdentity& identity) {
    std::lock_guard lock(mutex_);
    const auto found = mappings_.find(identity);
    return found == mappings_.end() ? nullptr : found->second.lock();
  }

  // When another thread was faster, its mapping is returned and `mapping` dropped.
  SharedMapping enter(const FileIdentity& identity, Mapping mapping) {
    SharedMapping fresh(new Mapping(std::move(mapping)), [this, identity](const Mapping* last) {
      forget(identity);
      delete last;
    });
    std::lock_guard lock(mutex_);
    std::weak_ptr<const Mapping>& entry = mappings_[identity];
    if (SharedMapping faster = entry.lock()) return faster;
    entry = fresh;
    return fresh;
  }

 private:
  void forget(const FileIdentity& identity) {
    std::lock_guard lock(mutex_);
    const auto found = mappings_.find(identity);
    if (found != mappings_.end() && found->second.expired()) mappings_.erase(found);
  }

  std::mutex mutex_;
  std::map<FileIdentity, std::weak_ptr<const Mapping>> mappings_;
};

}  // namespace

Result<SharedMapping> map_shared(const Fd& fd, std::size_t bytes, std::size_t populated) {
  const auto identity = identity_of(fd);
  if (!identity) return system_error("fstat of a memory descriptor", errno);
  if (SharedMapping known = Live::instance().find(*identity)) return known;
  // Outside the lock: populating takes long.
  auto mapping = Mapping::map(fd, bytes, populated);
  if (!mapping.ok()) return mapping.status();
  return Live::instance().enter(*identity, std::move(*mapping));
}

}  // namespace lockstep::internal
