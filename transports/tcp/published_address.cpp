#include "transports/tcp/published_address.hpp"

#include <algorithm>
#include <charconv>

#include "lib/base/config.hpp"
#include "lib/bootstrap/exchange.hpp"
#include "lib/net/interfaces.hpp"
#include "transports/tcp/limits.hpp"

namespace lockstep::internal {
namespace {

bool on_one_host(const Session& session) {
  const auto& members = session.members();
  return std::all_of(members.begin(), members.end(),
                     [&](const Member& member) { return member.host_id == members.front().host_id; });
}

Result<Fd> listen_on_loopback() {
  auto v4 = tcp_listen({"127.0.0.1", 0});
  return v4.ok() ? std::move(v4) : tcp_listen({"::1", 0});
}

Result<Fd> listen_on_interface(const Session& session, const std::string& filter) {
  auto available = interface_addresses();
  if (!available.ok()) return available.status();
  auto chosen = choose_interface(*available, filter);
  if (!chosen.ok()) return chosen.status();
  if (!chosen->loopback && session.secret().empty() && !config_flag("LOCKSTEP_INSECURE")) {
    return Status(ErrorCode::configuration,
                  "the ranks would listen on " + chosen->address + " (" + chosen->name +
                      ") without a secret, so that anyone who reaches it could join the job: set "
                      "LOCKSTEP_SECRET_FILE, or LOCKSTEP_INSECURE=1 to accept that");
  }
  return tcp_listen({chosen->address, 0});
}

}  // namespace

std::string PublishedAddress::text() const { return where.text() + " " + std::to_string(sockets); }

Result<PublishedAddress> PublishedAddress::parse(const std::string& text) {
  const Status malformed(ErrorCode::internal,
                         "\"" + text + "\" is not a published address: check that all ranks run one version");
  const std::size_t space = text.find(' ');
  if (space == std::string::npos) return malformed;
  auto where = parse_host_port(std::string_view(text).substr(0, space));
  if (!where.ok()) return malformed;
  PublishedAddress result{std::move(*where), 0};
  const char* end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data() + space + 1, end, result.sockets);
  if (error != std::errc() || last != end || result.sockets < 1 || result.sockets > kMaxSockets)
    return malformed;
  return result;
}

std::string published_key(int rank) { return exchange_key(kPublishedName, rank); }

Result<Fd> listen_for_peers(const Session& session) {
  const std::string filter = config_text("LOCKSTEP_IFNAME");
  if (filter.empty() && on_one_host(session)) return listen_on_loopback();
  return listen_on_interface(session, filter);
}

}  // namespace lockstep::internal
