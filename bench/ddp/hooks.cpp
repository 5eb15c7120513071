#include "bench/ddp/hooks.hpp"

#include <algorithm>
#include <array>

namespace lockstep::bench {
namespace {

struct NamedHook {
  const char* name;
  std::shared_ptr<CommunicationHook> (*make)();
};

constexpr NamedHook kHooks[] = {
    {"none", [] { return std::shared_ptr<CommunicationHook>(); }},
};

const NamedHook* find(const std::string& name) {
  const auto found = std::find_if(std::begin(kHooks), std::end(kHooks),
                                  [&](const NamedHook& hook) { return name == hook.name; });
  return found == std::end(kHooks) ? nullptr : found;
}

}  // namespace

bool is_hook(const std::string& name) { return find(name) != nullptr; }

std::string hook_names() {
  std::string names;
  for (const NamedHook& hook : kHooks) names += (names.empty() ? "" : ", ") + std::string(hook.name);
  return names;
}

std::shared_ptr<CommunicationHook> make_hook_by_name(const std::string& name) { return find(name)->make(); }

}  // namespace lockstep::bench
