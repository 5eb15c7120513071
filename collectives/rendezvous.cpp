// The public face of a served rendezvous.
#include "lockstep/rendezvous.hpp"

#include "collectives/forked_child.hpp"
#include "lib/base/config.hpp"
#include "lib/bootstrap/launch.hpp"
#include "lib/bootstrap/store_server.hpp"
#include "lib/net/interfaces.hpp"
#include "lib/net/tcp_socket.hpp"
#include "lockstep/error.hpp"

namespace lockstep {
namespace {

using internal::Result;

// What users keep in places of 64 bytes, as an ncclUniqueId has: "served://[]:65535" and this. One full
// address of IPv6 fits, or three of IPv4.
constexpr std::size_t kLongestHost = 46;

/// Best first, as one host; those that fit.
Result<std::string> own_addresses() {
  auto available = internal::interface_addresses();
  if (!available.ok()) return available.status();
  const internal::InterfaceFilter filter = internal::interface_filter_from_environment();
  auto usable = internal::usable_interfaces(*available, filter);
  if (!usable.ok() && !filter.text.empty()) return usable.status();
  if (!usable.ok() || usable->empty()) return internal::loopback_address();
  std::string host;
  for (const auto& one : *usable) {
    if (host.size() + 1 + one.address.size() > kLongestHost) continue;
    if (!host.empty()) host += internal::kBetweenHosts;
    host += one.address;
  }
  return host;
}

}  // namespace

Rendezvous::Rendezvous(const std::string& job_id, const std::string& secret) {
  internal::refuse_in_forked_child();
  if (secret.empty()) throw Error(ErrorCode::invalid_argument, "a served rendezvous needs a secret");
  internal::check_environment().throw_if_error();
  auto host = own_addresses();
  host.status().throw_if_error();
  internal::StoreServerOptions options;
  options.at = {*host, 0};
  options.key = internal::make_handshake_key(job_id, secret);
  auto server = internal::StoreServer::start(std::move(options));
  server.status().throw_if_error();
  server_ = std::move(*server);
  address_ = std::string(internal::kServedScheme) + server_->address().text();
}

Rendezvous::Rendezvous(Rendezvous&&) noexcept = default;
Rendezvous& Rendezvous::operator=(Rendezvous&&) noexcept = default;
Rendezvous::~Rendezvous() = default;

}  // namespace lockstep
