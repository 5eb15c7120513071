#include "lib/memory/shared_mappings.hpp"

#include <map>
#include <mutex>
#include <utility>

namespace lockstep::internal {
namespace {

struct Names {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<const Mapping>> mapping;

  // Never destroyed: the last user may be a static object.
  static Names& instance() {
    static Names* names = new Names;
    return *names;
  }

  // Called when the last user of a mapping is gone; the name may stand for a younger one by then.
  void forget(const std::string& name) {
    std::lock_guard lock(mutex);
    const auto found = mapping.find(name);
    if (found != mapping.end() && found->second.expired()) mapping.erase(found);
  }
};

}  // namespace

SharedMapping find_shared_mapping(const std::string& name) {
  Names& names = Names::instance();
  std::lock_guard lock(names.mutex);
  const auto found = names.mapping.find(name);
  return found == names.mapping.end() ? nullptr : found->second.lock();
}

SharedMapping enter_shared_mapping(const std::string& name, Mapping mapping) {
  SharedMapping fresh(new Mapping(std::move(mapping)), [name](const Mapping* last) {
    Names::instance().forget(name);
    delete last;
  });
  Names& names = Names::instance();
  std::lock_guard lock(names.mutex);
  std::weak_ptr<const Mapping>& entry = names.mapping[name];
  if (SharedMapping faster = entry.lock()) return faster;
  entry = fresh;
  return fresh;
}

std::string shared_name(const std::string& service, const std::string& key) { return service + "/" + key; }

}  // namespace lockstep::internal
