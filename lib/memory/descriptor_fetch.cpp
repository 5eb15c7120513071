// The asking side of the descriptor service: one connection a request.
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "lib/base/env.hpp"
#include "lib/memory/descriptor_packet.hpp"
#include "lib/memory/descriptor_service.hpp"
#include "lib/memory/limits.hpp"

namespace lockstep::internal {
namespace {

constexpr Nanos kNanosPerMilli = 1'000'000;

Status gone(const std::string& service) {
  return Status(ErrorCode::peer_lost, "the process behind descriptor service " + service + " is gone");
}

Status timed_out(const std::string& service, std::string_view key) {
  return Status(ErrorCode::timeout, "the process behind descriptor service " + service +
                                        " did not hand over \"" + std::string(key) + "\" in time");
}

// One fetch with its deadline.
class Fetch {
 public:
  Fetch(const std::string& service, std::string_view key, int timeout_ms)
      : service_(service), key_(key), deadline_(real_env().now() + timeout_ms * kNanosPerMilli) {}

  Result<std::vector<Fd>> run(IfAbsent if_absent) {
    LOCKSTEP_RETURN_IF_ERROR(connect());
    LOCKSTEP_RETURN_IF_ERROR(check_same_user(socket_));
    const std::string request = encode_request(if_absent, key_);
    // The buffer of a fresh connection has room for one packet: this cannot block.
    if (::send(socket_.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return gone(service_);
    return receive();
  }

 private:
  // SO_SNDTIMEO also bounds connect(), which waits while the listener's queue is full (unix(7)).
  Status connect() {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (service_.empty() || service_.size() >= sizeof address.sun_path) {
      return Status(ErrorCode::internal, "\"" + service_ + "\" is no name of a descriptor service");
    }
    std::memcpy(address.sun_path + 1, service_.data(), service_.size());
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + service_.size());
    socket_ = Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!socket_) return system_error("creating a socket to fetch a descriptor", errno);
    while (limit_wait(SO_SNDTIMEO)) {
      if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0) return Status();
      if (errno == ECONNREFUSED) return gone(service_);
      if (errno != EINTR && errno != EAGAIN)
        return system_error("connecting to descriptor service " + service_, errno);
    }
    return timed_out(service_, key_);
  }

  Result<std::vector<Fd>> receive() {
    while (limit_wait(SO_RCVTIMEO)) {
      DescriptorAnswer answer = receive_answer(socket_);
      if (answer.error_number == EINTR || answer.error_number == EAGAIN) continue;
      if (answer.error_number == EMFILE)
        return system_error("taking over memory of another process (`ulimit -n`)", EMFILE);
      if (answer.closed || answer.error_number != 0) return gone(service_);
      if (!answer.descriptors.empty()) return std::move(answer.descriptors);
      return Status(ErrorCode::internal, "the process behind descriptor service " + service_ +
                                             " does not offer \"" + std::string(key_) + "\"");
    }
    return timed_out(service_, key_);
  }

  // Sets the socket's timeout to what is left; false when nothing is.
  bool limit_wait(int option) {
    const Nanos left = deadline_ - real_env().now();
    if (left <= 0) return false;
    // Zero would mean forever.
    const timeval limit{left / 1'000'000'000, std::max<Nanos>(left % 1'000'000'000 / 1000, 1)};
    ::setsockopt(socket_.get(), SOL_SOCKET, option, &limit, sizeof limit);
    return true;
  }

  const std::string& service_;
  std::string_view key_;
  Nanos deadline_;
  Fd socket_;
};

}  // namespace

Result<std::vector<Fd>> fetch_descriptors(const std::string& service, std::string_view key,
                                          IfAbsent if_absent, int timeout_ms) {
  return Fetch(service, key, timeout_ms).run(if_absent);
}

}  // namespace lockstep::internal
