#include "lib/memory/descriptor_packet.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "lib/memory/limits.hpp"

namespace lockstep::internal {
namespace {

constexpr std::size_t kControlBytes = CMSG_SPACE(kMaxDescriptorsPerKey * sizeof(int));

// Takes ownership of every descriptor that came with `message`.
std::vector<Fd> attached(msghdr& message) {
  std::vector<Fd> descriptors;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      if (Fd owned(fd); owned) descriptors.push_back(std::move(owned));
    }
  }
  return descriptors;
}

}  // namespace

std::string encode(const ServiceName& name) { return name.socket + "/" + name.word; }

ServiceName decode_service_name(std::string_view text) {
  const std::size_t slash = std::min(text.find('/'), text.size());
  return {std::string(text.substr(0, slash)), std::string(text.substr(std::min(slash + 1, text.size())))};
}

std::string encode_request(const DescriptorRequest& request) {
  return static_cast<char>(request.if_absent) + request.word + request.key;
}

Result<DescriptorRequest> decode_request(std::string_view packet) {
  constexpr std::size_t kHead = 1 + kDescriptorWordBytes;
  if (packet.size() <= kHead || packet.size() > kHead + kMaxDescriptorKeyBytes) {
    return Status(ErrorCode::internal,
                  "a request of " + std::to_string(packet.size()) + " bytes for a descriptor");
  }
  const auto if_absent = static_cast<IfAbsent>(packet[0]);
  if (if_absent != IfAbsent::fail && if_absent != IfAbsent::wait) {
    return Status(ErrorCode::internal, "an unknown kind of request for a descriptor");
  }
  return DescriptorRequest{if_absent, std::string(packet.substr(1, kDescriptorWordBytes)),
                           std::string(packet.substr(kHead))};
}

bool send_answer(const Fd& socket, std::span<const Fd> descriptors) {
  auto count = static_cast<unsigned char>(descriptors.size());
  iovec body{&count, 1};
  alignas(cmsghdr) std::array<char, kControlBytes> control{};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    std::array<int, kMaxDescriptorsPerKey> numbers{};
    std::transform(descriptors.begin(), descriptors.end(), numbers.begin(),
                   [](const Fd& fd) { return fd.get(); });
    const std::size_t bytes = descriptors.size() * sizeof(int);
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(bytes);
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(bytes);
    std::memcpy(CMSG_DATA(part), numbers.data(), bytes);
  }
  return ::sendmsg(socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
}

DescriptorAnswer receive_answer(const Fd& socket) {
  unsigned char sent = 0;
  iovec body{&sent, 1};
  alignas(cmsghdr) std::array<char, kControlBytes> control{};
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  DescriptorAnswer answer;
  const ssize_t got = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  if (got < 0) {
    answer.error_number = errno;
  } else if (got == 0) {
    answer.closed = true;
  } else {
    answer.descriptors = attached(message);
    // The kernel hands over as many as there are numbers for, and drops the rest.
    if (answer.descriptors.size() != sent) answer.error_number = EMFILE;
  }
  return answer;
}

Status check_same_user(const Fd& socket) {
  ucred peer{};
  socklen_t bytes = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
    return system_error("SO_PEERCRED", errno);
  // Containers that share the host's network share its sockets' names, and their users may have one number.
  if (peer.pid == 0)
    return Status(ErrorCode::unauthorized, "the process at the other end is of another container");
  if (peer.uid == ::geteuid()) return Status();
  return Status(ErrorCode::unauthorized, "process " + std::to_string(peer.pid) + " runs as user " +
                                             std::to_string(peer.uid) + ", this one as user " +
                                             std::to_string(::geteuid()) +
                                             ": start all ranks of a host as one user");
}

}  // namespace lockstep::internal
