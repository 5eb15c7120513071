#include "ddp/hooks/hook_names.hpp"

#include <string>

#include "lockstep/ddp/hooks.hpp"

namespace lockstep {
namespace {

struct NamedHook {
  std::string_view name;
  std::shared_ptr<CommunicationHook> (*make)();
};
constexpr NamedHook kHooks[] = {
    {"none", []() -> std::shared_ptr<CommunicationHook> { return nullptr; }},
    {"bf16", [] { return make_half_hook(DataType::bf16); }},
    {"f16", [] { return make_half_hook(DataType::f16); }},
    {"i8", [] { return make_quantised_hook({.type = DataType::i8}); }},
    {"f8e4m3", [] { return make_quantised_hook({.type = DataType::f8e4m3}); }},
    {"f8e5m2", [] { return make_quantised_hook({.type = DataType::f8e5m2}); }},
    {"top_k", [] { return make_top_k_hook(); }},
    {"powersgd", [] { return make_power_sgd_hook(); }},
};

}  // namespace

std::vector<std::string_view> internal::hook_names() {
  std::vector<std::string_view> names;
  for (const NamedHook& hook : kHooks) names.push_back(hook.name);
  return names;
}

std::shared_ptr<CommunicationHook> hook_by_name(std::string_view name) {
  std::string names;
  for (const NamedHook& hook : kHooks) {
    if (hook.name == name) return hook.make();
    names += (names.empty() ? "" : ", ") + std::string(hook.name);
  }
  throw Error(ErrorCode::invalid_argument,
              "no hook is called \"" + std::string(name) + "\"; choose " + names);
}

}  // namespace lockstep
