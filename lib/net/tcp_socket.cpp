#include "lib/net/tcp_socket.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>

#include "lib/net/interfaces.hpp"
#include "lib/net/port_holder.hpp"
#include "lib/net/stream_io.hpp"

namespace lockstep::internal {
namespace {

constexpr int kBacklog = 4096;  // A whole large job may connect at once; the kernel lowers it to somaxconn.

constexpr const char* kWiden = "widen net.ipv4.ip_local_port_range, or end programs that hold ports of it";

constexpr Nanos kPerMilli = 1'000'000;
constexpr Nanos kLongestPoll = 1'000'000 * kPerMilli;  // poll(2) takes an int.

struct Address {
  sockaddr_storage storage{};
  socklen_t bytes = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr& operator*() const { return reinterpret_cast<const sockaddr&>(storage); }
  bool operator==(const Address& other) const {
    return bytes == other.bytes && std::memcmp(&storage, &other.storage, bytes) == 0;
  }
};

/// Without these no name is found and nobody reached, whoever is there.
bool is_lack(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS; }

/// `error`: of getaddrinfo(3), which opens files and sockets, and calls a name unknown where it cannot.
Status unknown_host(const std::string& host, int error) {
  const int reason = errno;
  const std::string what = "cannot find the address of \"" + host + "\"";
  const Fd another(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!another && is_lack(errno)) return system_error(what, errno);
  if (error == EAI_MEMORY) return system_error(what, ENOMEM);
  return Status(ErrorCode::peer_lost,
                what + ": " + (error == EAI_SYSTEM ? std::strerror(reason) : gai_strerror(error)));
}

/// Adds those of one name, each once: a hosts file may name one twice.
Status add_addresses(std::vector<Address>& found, const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) return unknown_host(host, error);
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, freeaddrinfo);
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    Address address;
    address.bytes = entry->ai_addrlen;
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    if (std::find(found.begin(), found.end(), address) == found.end()) found.push_back(address);
  }
  return Status();
}

/// Of all names of `where`; an error where one cannot be found.
Result<std::vector<Address>> look_up(const HostPort& where, int flags) {
  std::vector<Address> found;
  for (std::string_view left = where.host;;) {
    const std::string_view name = left.substr(0, left.find(kBetweenHosts));
    LOCKSTEP_RETURN_IF_ERROR(add_addresses(found, std::string(name), where.port, flags));
    if (name.size() == left.size()) return found;
    left.remove_prefix(name.size() + 1);
  }
}

Fd make_socket(const Address& address) {
  return Fd(socket((*address).sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
}

void set_flag(const Fd& socket, int level, int name, int value = 1) {
  (void)setsockopt(socket.get(), level, name, &value, sizeof value);  // An optimisation where it fails.
}

bool is_anywhere_v6(const sockaddr& address) {
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  return address.sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6.sin6_addr);
}

/// The errno of what failed, or 0.
int listen_on(const Address& address, Fd& fd) {
  fd = make_socket(address);
  if (!fd) return errno;
  // Else a port is refused for a minute after its last connection ended.
  set_flag(fd, SOL_SOCKET, SO_REUSEADDR);
  // Whatever net.ipv6.bindv6only says.
  if (is_anywhere_v6(*address)) set_flag(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (bind(fd.get(), &*address, address.bytes) != 0) return errno;
  return listen(fd.get(), kBacklog) == 0 ? 0 : errno;
}

void set_port(sockaddr& address, std::uint16_t port) {
  if (address.sa_family == AF_INET) reinterpret_cast<sockaddr_in&>(address).sin_port = htons(port);
  if (address.sa_family == AF_INET6) reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(port);
}

/// Waits until a connect that is under way has ended; returns its errno, or ETIMEDOUT.
int finish_connect(const Fd& fd, Nanos until, Env& env) {
  pollfd entry{fd.get(), POLLOUT, 0};
  for (;;) {
    const Nanos left = std::clamp<Nanos>(until - env.now(), 0, kLongestPoll);
    const int ready = poll(&entry, 1, static_cast<int>((left + kPerMilli - 1) / kPerMilli));
    if (ready < 0 && errno != EINTR) return errno;
    if (ready > 0) break;
    if (env.now() >= until) return ETIMEDOUT;
  }
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    return (ntohl(v4.sin_addr.s_addr) >> 24) == IN_LOOPBACKNET;
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (address.sa_family != AF_INET6) return false;
  const bool v4 = IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr) && v6.sin6_addr.s6_addr[12] == IN_LOOPBACKNET;
  return v4 || IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr);
}

/// Where that is why connect(2) failed.
bool is_loopback_down(const sockaddr& to, int error) {
  if (error != ENETUNREACH || !is_loopback(to)) return false;
  auto up = interface_addresses();
  return up.ok() &&
         std::none_of(up->begin(), up->end(), [](const InterfaceAddress& one) { return one.loopback; });
}

/// `error`: of socket(2) or connect(2).
Status connect_failure(const sockaddr& address, const std::string& to, int error) {
  const std::string what = "cannot connect to " + to;
  if (is_lack(error)) return system_error(what, error);
  const bool is_own = is_refused_here(error) || is_loopback_down(address, error);
  return Status(is_own ? ErrorCode::system : ErrorCode::peer_lost,
                what + ": " + connect_failure_text(error, address));
}

Result<Fd> connect_to(const Address& address, const std::string& to, Nanos until, Env& env) {
  Fd fd = make_socket(address);
  if (!fd) return connect_failure(*address, to, errno);
  int error = connect(fd.get(), &*address, address.bytes) == 0 ? 0 : errno;
  if (error == EINPROGRESS || error == EINTR) error = finish_connect(fd, until, env);
  if (error == 0 && calls_itself(fd, *address)) error = ECONNREFUSED;
  if (error == ETIMEDOUT)
    return Status(ErrorCode::timeout, "no answer from " + to +
                                          " (its host is down or busy, or a firewall keeps the port closed)");
  if (error != 0) return connect_failure(*address, to, error);
  set_flag(fd, IPPROTO_TCP, TCP_NODELAY);
  return fd;
}

HostPort describe(const sockaddr_storage& storage) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(storage);
    inet_ntop(AF_INET, &v4.sin_addr, text.data(), text.size());
    return {text.data(), ntohs(v4.sin_port)};
  }
  if (storage.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
    inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
    return {text.data(), ntohs(v6.sin6_port)};
  }
  return {};
}

HostPort describe(const sockaddr& address) {
  sockaddr_storage storage{};
  const bool v6 = address.sa_family == AF_INET6;
  std::memcpy(&storage, &address, v6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in));
  return describe(storage);
}

/// Of a host that may have several addresses, with the one that is meant: "node-2:5000 (10.0.0.2)".
std::string text_with_address(const HostPort& of, const sockaddr& address) {
  const bool is_only_one = is_numeric_address(of.host) && of.host.find(kBetweenHosts) == std::string::npos;
  return of.text() + (is_only_one ? "" : " (" + describe(address).host + ")");
}

/// Adds what was wrong with one more address. Where time ran out on one only, the others say more; what this
/// host itself lacks counts where it lacks that for all of them.
void add_failure(Status& failures, const Status& one) {
  if (failures.ok()) {
    failures = one;
    return;
  }
  const auto weight = [](ErrorCode code) {
    return code == ErrorCode::peer_lost ? 2 : code == ErrorCode::timeout ? 1 : 0;
  };
  const bool says_more = weight(one.code()) > weight(failures.code());
  failures = Status(says_more ? one.code() : failures.code(), failures.message() + ", " + one.message());
}

std::optional<sockaddr_storage> peer_of(const Fd& socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (getpeername(socket.get(), reinterpret_cast<sockaddr*>(&storage), &size) != 0) return std::nullopt;
  return storage;
}

}  // namespace

std::string HostPort::text() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<HostPort> parse_host_port(std::string_view text) {
  const auto malformed = [&] {
    return Status(
        ErrorCode::configuration,
        "\"" + std::string(text) + "\" is not an address: write host:port, or [address]:port for IPv6");
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return malformed();
  std::string_view host = text.substr(0, colon);
  const std::string_view port_text = text.substr(colon + 1);
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return malformed();
  }
  HostPort result{std::string(host), 0};
  const auto [end, error] =
      std::from_chars(port_text.data(), port_text.data() + port_text.size(), result.port);
  if (error != std::errc() || end != port_text.data() + port_text.size() || host.empty()) return malformed();
  return result;
}

Result<std::vector<Fd>> tcp_listen_everywhere(const HostPort& at) {
  auto addresses = look_up(at, AI_PASSIVE);
  if (!addresses.ok()) return Status(ErrorCode::system, addresses.status().message());
  LOCKSTEP_RETURN_IF_ERROR(check_may_accept().with_context("cannot listen on " + at.text()));
  std::vector<Fd> sockets;
  Status failures;
  for (Address& address : *addresses) {
    if (!sockets.empty()) set_port(*address.get(), local_address(sockets.front()).port);
    Fd fd;
    const int error = listen_on(address, fd);
    if (error == 0) {
      sockets.push_back(std::move(fd));
      continue;
    }
    const std::string what = "cannot listen on " + text_with_address(at, *address);
    // Another program would hear those who take this address. What is bound here is not drawn again.
    if (error == EADDRINUSE && at.port == 0 && !sockets.empty()) return tcp_listen_everywhere(at);
    if (error == EADDRINUSE && at.port == 0)
      return Status(ErrorCode::system, what + ": no port is free there: " + kWiden);
    if (error == EADDRINUSE) {
      return Status(ErrorCode::system, what + ": the port is already taken by " +
                                           describe_port_holder(*address) +
                                           "; end that process, or choose another port");
    }
    add_failure(failures, system_error(what, error));
  }
  if (sockets.empty()) return failures;
  return sockets;
}

Result<Fd> tcp_listen(const HostPort& at) {
  auto sockets = tcp_listen_everywhere(at);
  if (!sockets.ok()) return sockets.status();
  return std::move(sockets->front());
}

Result<Fd> tcp_connect(const HostPort& to, std::chrono::milliseconds timeout, Env& env) {
  const Nanos until = env.now() + to_nanos(timeout);
  auto addresses = look_up(to, 0);
  if (!addresses.ok()) return addresses.status();
  auto untried = static_cast<std::int64_t>(addresses->size());
  Status failures;
  for (const Address& address : *addresses) {
    // One that swallows what it is sent leaves the others their share.
    const Nanos now = env.now();
    const std::string text = text_with_address(to, *address);
    auto fd = connect_to(address, text, now + (until - now) / untried--, env);
    if (fd.ok()) return fd;
    add_failure(failures, fd.status());
  }
  return failures;
}

HostPort local_address(const Fd& socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&storage), &size) != 0) return {};
  return describe(storage);
}

HostPort remote_address(const Fd& socket) {
  const auto peer = peer_of(socket);
  return peer ? describe(*peer) : HostPort();
}

// By what was called and not by getpeername(2), which knows no peer of a call that is still under way.
bool calls_itself(const Fd& socket, const sockaddr& to) {
  const HostPort own = local_address(socket), called = describe(to);
  const bool anywhere = called.host == "0.0.0.0" || called.host == "::";  // Leads to this host.
  return own.port == called.port && (anywhere || own.host == called.host);
}

bool is_refused_here(int error) { return error == EPERM || error == EACCES; }

std::string connect_failure_text(int error, const sockaddr& to) {
  if (is_loopback_down(to, error)) {
    return std::string(std::strerror(error)) +
           ": the loopback interface is down in this host or container: bring it up (`ip link set lo up`)";
  }
  if (is_refused_here(error)) {
    return std::string(std::strerror(error)) +
           ": a firewall of this host, or the seccomp profile of its container, does not let this process "
           "call";
  }
  if (error != EADDRNOTAVAIL) return std::strerror(error);
  return std::string(
             "no port is free here for another connection to it, or this host has no address of its "
             "kind: ") +
         kWiden;
}

bool has_loopback_peer(const Fd& socket) {
  const auto peer = peer_of(socket);
  return peer && is_loopback(reinterpret_cast<const sockaddr&>(*peer));
}

bool is_numeric_address(const std::string& host) { return look_up({host, 0}, AI_NUMERICHOST).ok(); }

Status check_host(const std::string& host) { return look_up({host, 0}, 0).status(); }

bool is_elsewhere(const std::string& host) {
  auto addresses = look_up({host, 0}, AI_PASSIVE);
  if (!addresses.ok()) return false;
  for (const Address& address : *addresses) {
    Fd fd;
    if (listen_on(address, fd) != EADDRNOTAVAIL) return false;
  }
  return true;
}

std::string loopback_address() {
  for (const char* host : {"127.0.0.1", "::1"}) {
    if (tcp_listen({host, 0}).ok()) return host;
  }
  return "127.0.0.1";  // Whoever listens there hears why not.
}

bool is_loopback(const std::string& host) {
  auto addresses = look_up({host, 0}, 0);
  if (!addresses.ok()) return false;
  return std::all_of(addresses->begin(), addresses->end(),
                     [](const Address& address) { return is_loopback(*address); });
}

}  // namespace lockstep::internal
