#include "lib/net/abstract_socket.hpp"

#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>

#include "lib/base/random_text.hpp"

namespace lockstep::internal {
namespace {

constexpr std::size_t kNameBytes = 16;  // Random ones.

/// What `call` makes of the address that the name stands for.
template <class Call>
bool with_address(std::string_view name, Call&& call) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.empty() || name.size() >= sizeof address.sun_path) {
    errno = EINVAL;
    return false;
  }
  std::copy(name.begin(), name.end(), address.sun_path + 1);  // A leading NUL: abstract.
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return call(reinterpret_cast<const sockaddr*>(&address), bytes) == 0;
}

Fd looker() { return Fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)); }

}  // namespace

bool bind_abstract(const Fd& socket, std::string_view name) {
  return with_address(
      name, [&](const sockaddr* address, socklen_t bytes) { return ::bind(socket.get(), address, bytes); });
}

bool connect_abstract(const Fd& socket, std::string_view name) {
  return with_address(name, [&](const sockaddr* address, socklen_t bytes) {
    return ::connect(socket.get(), address, bytes);
  });
}

Result<LifeSign> LifeSign::show() { return show("lockstep-" + random_text(kNameBytes)); }

// A datagram socket that is bound can be connected to, and nothing else is done with it.
Result<LifeSign> LifeSign::show(std::string name) {
  Fd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket) return system_error("creating a socket", errno);
  if (!bind_abstract(socket, name)) return system_error("binding a socket to " + name, errno);
  return LifeSign(std::move(socket), std::move(name));
}

bool is_down(std::string_view life_sign) {
  const Fd socket = looker();
  return socket && !connect_abstract(socket, life_sign) && errno == ECONNREFUSED;
}

bool is_up(std::string_view life_sign) {
  const Fd socket = looker();
  return socket && connect_abstract(socket, life_sign);
}

}  // namespace lockstep::internal
