#include "transports/tcp/published_address.hpp"

#include <algorithm>
#include <charconv>

#include "lib/base/config.hpp"
#include "lib/net/interfaces.hpp"
#include "lib/net/stream_io.hpp"
#include "transports/tcp/limits.hpp"

namespace lockstep::internal {
namespace {

Result<Fd> listen_at(const std::string& address) {
  auto listener = tcp_listen({address, 0});
  if (listener.ok()) start_unpaced(*listener);
  return listener;
}

Result<Listeners> listen_on_loopback() {
  auto listener = listen_at(loopback_address());
  if (!listener.ok()) return listener.status();
  Listeners result;
  result.sockets.push_back(std::move(*listener));
  return result;
}

/// A slower interface would hold up what is dealt out evenly.
bool is_next_rail(std::span<const InterfaceAddress* const> rails, const InterfaceAddress& one) {
  return std::all_of(rails.begin(), rails.end(), [&](const InterfaceAddress* other) {
    return other->name != one.name && other->megabits == one.megabits && other->v6 == one.v6;
  });
}

Status check_secret(const Session& session, const InterfaceAddress& exposed) {
  if (exposed.loopback || !session.secret().empty() || config_flag("LOCKSTEP_INSECURE")) return {};
  return Status(ErrorCode::configuration,
                "the ranks would listen on " + exposed.address + " (" + exposed.name +
                    ") without a secret, so that anyone who reaches it could join the job: set "
                    "LOCKSTEP_SECRET_FILE, or LOCKSTEP_INSECURE=1 to accept that");
}

Result<Listeners> listen_on_interfaces(const Session& session, const InterfaceFilter& filter) {
  auto available = interface_addresses();
  if (!available.ok()) return available.status();
  auto usable = usable_interfaces(*available, filter);
  if (!usable.ok()) return usable.status();
  Listeners result;
  std::vector<const InterfaceAddress*> rails;
  bool more_rails = true;
  Status first_error;
  for (const InterfaceAddress& one : *usable) {
    if (result.sockets.size() == kMaxAddresses) break;
    LOCKSTEP_RETURN_IF_ERROR(check_secret(session, one));
    auto listener = listen_at(one.address);
    // An address that the kernel still examines, or has found twice on the network, cannot be bound.
    if (listener.ok()) {
      result.sockets.push_back(std::move(*listener));
      more_rails = more_rails && is_next_rail(rails, one);
      if (more_rails) rails.push_back(&one);
    } else if (first_error.ok()) {
      first_error = listener.status();
    }
  }
  if (result.sockets.empty()) return first_error;
  result.rails = static_cast<int>(rails.size());
  return result;
}

}  // namespace

std::string PublishedAddress::text() const {
  std::string result;
  for (const HostPort& one : where) result += one.text() + " ";
  return result + std::to_string(sockets) + (rails > 1 ? "/" + std::to_string(rails) : "");
}

Result<PublishedAddress> PublishedAddress::parse(const std::string& text) {
  const Status malformed(ErrorCode::internal,
                         "\"" + text + "\" is not a published address: check that all ranks run one version");
  PublishedAddress result;
  std::string_view rest = text;
  for (auto space = rest.find(' '); space != std::string_view::npos; space = rest.find(' ')) {
    auto where = parse_host_port(rest.substr(0, space));
    if (!where.ok() || result.where.size() == kMaxAddresses) return malformed;
    result.where.push_back(std::move(*where));
    rest.remove_prefix(space + 1);
  }
  const auto number = [](std::string_view digits, int& value) {
    const char* end = digits.data() + digits.size();
    const auto [last, error] = std::from_chars(digits.data(), end, value);
    return error == std::errc() && last == end;
  };
  const auto slash = rest.find('/');
  if (!number(rest.substr(0, slash), result.sockets) || result.sockets < 1 || result.sockets > kMaxSockets)
    return malformed;
  if (slash != std::string_view::npos && !number(rest.substr(slash + 1), result.rails)) return malformed;
  if (result.rails < 1 || result.rails > static_cast<int>(result.where.size())) return malformed;
  return result;
}

Result<Listeners> listen_for_peers(const Session& session) {
  const bool one_host = on_one_host(session.members());
  if (one_host && !config_is_set("LOCKSTEP_IFNAME")) return listen_on_loopback();
  return listen_on_interfaces(session, interface_filter_from_environment());
}

}  // namespace lockstep::internal
