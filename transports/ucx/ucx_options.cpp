#include "transports/ucx/ucx_options.hpp"

#include <cstdlib>
#include <string_view>

namespace lockstep::internal {
namespace {

/// Whether UCX opens TCP for sure: it warns of options that nothing of it takes.
bool has_tcp() {
  const char* const transports = std::getenv("UCX_TLS");
  if (transports == nullptr) return std::getenv("UCX_NET_DEVICES") == nullptr;
  return *transports != '^' && std::string_view(transports).find("tcp") != std::string_view::npos;
}

}  // namespace

void connect_in_the_background(const UcxLibrary& ucx, ucp_config_t* config) {
  if (!has_tcp() || std::getenv("UCX_TCP_CONN_NB") != nullptr) return;
  unsigned major = 0, minor = 0, release = 0;
  ucx.get_version(&major, &minor, &release);
  const bool has_prefixes = major > 1 || minor >= 17;
  (void)ucx.config_modify(config, has_prefixes ? "TCP_CONN_NB" : "CONN_NB", "y");  // An aid where it fails.
}

}  // namespace lockstep::internal
