// The asking side of the descriptor service: one connection a request.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "lib/memory/descriptor_packet.hpp"
#include "lib/memory/descriptor_service.hpp"
#include "lib/net/abstract_socket.hpp"

namespace lockstep::internal {
namespace {

constexpr Nanos kNanosPerMilli = 1'000'000;

Status gone(const std::string& service) {
  return Status(ErrorCode::peer_lost, "the process behind descriptor service " + service + " is gone");
}

}  // namespace

DescriptorFetch::DescriptorFetch(std::string_view service, std::string key, IfAbsent if_absent)
    : key_(std::move(key)), if_absent_(if_absent) {
  ServiceName name = decode_service_name(service);
  service_ = std::move(name.socket);
  word_ = std::move(name.word);
}

Status DescriptorFetch::timed_out() const {
  return Status(ErrorCode::timeout, "the process behind descriptor service " + service_ +
                                        " did not hand over \"" + key_ + "\" in time");
}

Result<std::vector<Fd>> DescriptorFetch::wait(int timeout_ms) {
  deadline_ = real_env().now() + timeout_ms * kNanosPerMilli;
  if (!asked_) LOCKSTEP_RETURN_IF_ERROR(request());
  return receive();
}

Status DescriptorFetch::request() {
  LOCKSTEP_RETURN_IF_ERROR(connect());
  LOCKSTEP_RETURN_IF_ERROR(check_same_user(socket_));
  const std::string request = encode_request({if_absent_, word_, key_});
  // The buffer of a fresh connection has room for one packet: this cannot block.
  if (::send(socket_.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return gone(service_);
  asked_ = true;
  return {};
}

// SO_SNDTIMEO also bounds connect(), which waits while the listener's queue is full (unix(7)).
Status DescriptorFetch::connect() {
  deadline_ = std::max(deadline_, real_env().now() + kNanosPerMilli);
  if (service_.empty()) {
    return Status(ErrorCode::system, "the process could not start what hands out its memory: " + word_ +
                                         "; where that cannot be mended, use LOCKSTEP_TRANSPORTS=tcp");
  }
  if (!socket_) socket_ = Fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket_) return system_error("creating a socket to fetch a descriptor", errno);
  while (limit_connect()) {
    if (connect_abstract(socket_, service_)) return Status();
    if (errno == ECONNREFUSED) return gone(service_);
    if (errno == EINVAL)
      return Status(ErrorCode::internal, "\"" + service_ + "\" is no name of a descriptor service");
    if (errno != EINTR && errno != EAGAIN)
      return system_error("connecting to descriptor service " + service_, errno);
  }
  return timed_out();
}

Result<std::vector<Fd>> DescriptorFetch::receive() {
  for (;;) {
    // Not by a timeout of the socket, which lasts a tick of the kernel's clock at least.
    pollfd ready{socket_.get(), POLLIN, 0};
    const Nanos left = std::max<Nanos>(deadline_ - real_env().now(), 0);
    const int count = ::poll(&ready, 1, static_cast<int>((left + kNanosPerMilli - 1) / kNanosPerMilli));
    if (count == 0) return timed_out();
    if (count < 0) continue;  // Interrupted.
    DescriptorAnswer answer = receive_answer(socket_);
    if (answer.error_number == EINTR || answer.error_number == EAGAIN) continue;
    if (answer.error_number == EMFILE) return system_error("taking over memory of another process", EMFILE);
    if (answer.closed || answer.error_number != 0) return gone(service_);
    if (!answer.descriptors.empty()) return std::move(answer.descriptors);
    return Status(ErrorCode::internal,
                  "the process behind descriptor service " + service_ + " does not offer \"" + key_ + "\"");
  }
}

// Sets the socket's timeout to what is left; false when nothing is.
bool DescriptorFetch::limit_connect() {
  const Nanos left = deadline_ - real_env().now();
  if (left <= 0) return false;
  // Zero would mean forever.
  const timeval limit{left / 1'000'000'000, std::max<Nanos>(left % 1'000'000'000 / 1000, 1)};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  return true;
}

Result<std::vector<Fd>> fetch_descriptors(const std::string& service, std::string_view key,
                                          IfAbsent if_absent, int timeout_ms) {
  return DescriptorFetch(service, std::string(key), if_absent).wait(timeout_ms);
}

}  // namespace lockstep::internal
