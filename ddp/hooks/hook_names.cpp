// Hooks by name, for command lines.
#include <string>

#include "lockstep/ddp/hooks.hpp"

namespace lockstep {

std::shared_ptr<CommunicationHook> hook_by_name(std::string_view name) {
  if (name == "none") return nullptr;
  if (name == "bf16") return make_half_hook(DataType::bf16);
  if (name == "f16") return make_half_hook(DataType::f16);
  if (name == "i8") return make_quantised_hook({.type = DataType::i8});
  if (name == "f8e4m3") return make_quantised_hook({.type = DataType::f8e4m3});
  if (name == "f8e5m2") return make_quantised_hook({.type = DataType::f8e5m2});
  if (name == "top_k") return make_top_k_hook();
  if (name == "powersgd") return make_power_sgd_hook();
  throw Error(ErrorCode::invalid_argument,
              "no hook is called \"" + std::string(name) +
                  "\"; choose none, bf16, f16, i8, f8e4m3, f8e5m2, top_k or powersgd");
}

}  // namespace lockstep
