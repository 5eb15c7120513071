#include "lib/net/stream_io.hpp"

#include <linux/tcp.h>  // Not netinet/tcp.h, whose tcp_info ends earlier.
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <string_view>

namespace lockstep::internal {
namespace {

constexpr int kSendFlags = MSG_DONTWAIT | MSG_NOSIGNAL;

template <typename Call>
Transfer transfer(Call call, bool receiving) noexcept {
  ssize_t got = -1;
  do {
    got = call();
  } while (got < 0 && errno == EINTR);
  if (got > 0) return {.bytes = static_cast<std::size_t>(got)};
  if (got == 0) return {.ended = receiving};
  if (errno == EAGAIN || errno == EWOULDBLOCK) return {};
  return {.error = errno};
}

msghdr message_of(std::span<const iovec> parts) noexcept {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());  // The kernel only reads the array.
  message.msg_iovlen = parts.size();
  return message;
}

Status set_option(const Fd& socket, int level, int name, int value, const char* what) {
  if (setsockopt(socket.get(), level, name, &value, sizeof value) == 0) return {};
  return system_error(std::string("cannot set ") + what + " on a connection", errno);
}

std::string allowed_congestion_controls() {
  std::ifstream file("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
  std::string line;
  std::getline(file, line);
  return line.empty() ? "unknown" : line;
}

// Every kernel has it, every process may use it, and it does not pace.
constexpr std::string_view kUnpaced = "reno";
// Better than that where queues are short, but not allowed to every process.
constexpr std::string_view kUnpacedBetweenHosts = "cubic";

bool change_congestion(const Fd& socket, std::string_view name) {
  return setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(),
                    static_cast<socklen_t>(name.size())) == 0;
}

// From Linux 6.15 on; older headers do not know it.
#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif
// The least that the kernel takes.
constexpr int kLongestPauseMillis = 1000;

// What the system gives to a new socket.
std::string usual_congestion() {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP));
  return congestion_of(socket);
}

std::chrono::microseconds least_round_trip(const Fd& socket) {
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(socket.get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return kNear;
  return std::chrono::microseconds(info.tcpi_min_rtt);
}

void choose_congestion(const Fd& socket, bool between_hosts) {
  if (congestion_of(socket) != kUnpaced) return;  // Its route has one of its own.
  static const std::string usual = usual_congestion();
  if (between_hosts) (void)change_congestion(socket, better_congestion(usual, least_round_trip(socket)));
}

Status set_congestion(const Fd& socket, const StreamOptions& options) {
  const std::string& name = options.congestion;
  if (name.empty()) choose_congestion(socket, options.between_hosts);
  if (name.empty() || change_congestion(socket, name)) return {};
  if (!options.congestion_required) return {};
  return Status(ErrorCode::configuration,
                "TCP congestion control \"" + name +
                    "\" is not available to this process; allowed here: " + allowed_congestion_controls());
}

Status ask_for_signs_of_life(const Fd& socket) {
  LOCKSTEP_RETURN_IF_ERROR(set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE"));
  LOCKSTEP_RETURN_IF_ERROR(set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 1, "TCP_KEEPIDLE"));
  LOCKSTEP_RETURN_IF_ERROR(set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 1, "TCP_KEEPINTVL"));
  LOCKSTEP_RETURN_IF_ERROR(set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, kSilenceLimit, "TCP_KEEPCNT"));
  // Where the kernel has it, it asks a silent or busy peer that often, instead of ever more seldom.
  (void)set_option(socket, IPPROTO_TCP, TCP_RTO_MAX_MS, kLongestPauseMillis, "TCP_RTO_MAX_MS");
  return {};
}

// Errors of a connection that died while it waited to be accepted (accept(2) hands them over).
bool died_in_queue(int error) {
  switch (error) {
    case ECONNABORTED:
    case EPROTO:
    case ENETDOWN:
    case ENOPROTOOPT:
    case EHOSTDOWN:
    case ENONET:
    case EHOSTUNREACH:
    case EOPNOTSUPP:
    case ENETUNREACH:
    case EINTR:
      return true;
    default:
      return false;
  }
}

}  // namespace

Transfer send_some(int fd, std::span<const std::byte> bytes) noexcept {
  return transfer([&] { return ::send(fd, bytes.data(), bytes.size(), kSendFlags); }, false);
}

Transfer send_some(int fd, std::span<const iovec> parts) noexcept {
  const msghdr message = message_of(parts);
  return transfer([&] { return ::sendmsg(fd, &message, kSendFlags); }, false);
}

Transfer receive_some(int fd, std::span<std::byte> into) noexcept {
  return transfer([&] { return ::recv(fd, into.data(), into.size(), MSG_DONTWAIT); }, true);
}

Transfer receive_some(int fd, std::span<const iovec> parts) noexcept {
  if (parts.size() == 1)  // The cheaper call: the kernel has no list to copy and check.
    return receive_some(fd, {static_cast<std::byte*>(parts[0].iov_base), parts[0].iov_len});
  msghdr message = message_of(parts);
  return transfer([&] { return ::recvmsg(fd, &message, MSG_DONTWAIT); }, true);
}

namespace {

/// An error of socket() or connect() that is over before it began.
Status no_connection(const HostPort& to, const sockaddr& address, int error) {
  const std::string what = "cannot connect to " + to.text();
  if (error == EMFILE || error == ENFILE) return system_error(what, error);
  const bool own = error == ENOBUFS || error == ENOMEM || error == EADDRNOTAVAIL || is_refused_here(error);
  return Status(own ? ErrorCode::system : ErrorCode::peer_lost,
                what + ": " + connect_failure_text(error, address));
}

}  // namespace

Result<Fd> start_connect(const HostPort& to) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;  // Never asks a name server, so never blocks.
  addrinfo* list = nullptr;
  if (getaddrinfo(to.host.c_str(), std::to_string(to.port).c_str(), &hints, &list) != 0) {
    return Status(ErrorCode::peer_lost, "\"" + to.text() + "\" is not a numeric address");
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(list, freeaddrinfo);
  Fd fd(::socket(list->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!fd) return no_connection(to, *list->ai_addr, errno);
  start_unpaced(fd);
  const int error = ::connect(fd.get(), list->ai_addr, list->ai_addrlen) == 0 ? 0 : errno;
  if (error != 0 && error != EINPROGRESS && error != EINTR) return no_connection(to, *list->ai_addr, error);
  if (calls_itself(fd, *list->ai_addr)) return no_connection(to, *list->ai_addr, ECONNREFUSED);
  return fd;
}

void start_unpaced(const Fd& socket) noexcept { (void)change_congestion(socket, kUnpaced); }

std::string congestion_of(const Fd& socket) {
  std::array<char, 16> name{};  // TCP_CA_NAME_MAX
  socklen_t size = name.size() - 1;
  if (getsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &size) != 0) return {};
  return name.data();
}

std::string_view better_congestion(std::string_view usual, std::chrono::microseconds round_trip) noexcept {
  return usual.starts_with("bbr") && round_trip < kNear ? kUnpacedBetweenHosts : usual;
}

int connect_error(const Fd& socket) noexcept {
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

// The kernel itself says EBADF.
Status check_may_accept() {
  if (::accept4(-1, nullptr, nullptr, SOCK_CLOEXEC) >= 0 || errno == EBADF) return {};
  return Status(ErrorCode::system, std::string("taking connections is refused here (accept4: ") +
                                       std::strerror(errno) +
                                       "): let the container's seccomp profile allow accept4");
}

Result<std::optional<Fd>> accept_connection(const Fd& listener) {
  for (;;) {
    Fd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd) return std::optional<Fd>(std::move(fd));
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::optional<Fd>();
    if (!died_in_queue(errno)) return system_error("accept", errno);
  }
}

Status set_stream_options(const Fd& socket, const StreamOptions& options) {
  LOCKSTEP_RETURN_IF_ERROR(set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY"));
  LOCKSTEP_RETURN_IF_ERROR(set_congestion(socket, options));
  return options.between_hosts ? ask_for_signs_of_life(socket) : Status();
}

Status notice_vanished_peer(const Fd& socket) {
  return has_loopback_peer(socket) ? Status() : ask_for_signs_of_life(socket);
}

std::string silence_text() { return "its host has not answered for " + std::to_string(kSilenceLimit) + " s"; }

bool is_silent(int fd) noexcept {
  constexpr unsigned kUnanswered = 2;  // One alone may be on its way.
  // It is asked once a second, so what it was asked last may be as new as its silence is old enough.
  constexpr unsigned kAnswerMillis = 500;
  tcp_info info{};
  socklen_t size = sizeof info;
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  return unsigned{info.tcpi_retransmits} + info.tcpi_probes >= kUnanswered &&
         info.tcpi_last_ack_recv >= kSilenceLimit * 1000 + kAnswerMillis;
}

}  // namespace lockstep::internal
