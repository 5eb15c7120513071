#include "bench/peers/driver_socket.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <system_error>

namespace peers {

DriverSocket::DriverSocket(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    throw std::system_error(ENAMETOOLONG, std::generic_category(), path);
  std::memcpy(address.sun_path, path.c_str(), path.size());
  if (fd_ < 0 || connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot reach the driver at " + path);
  }
}

DriverSocket::~DriverSocket() { close(fd_); }

std::optional<std::string> DriverSocket::read_line() {
  for (;;) {
    const auto end = pending_.find('\n');
    if (end != std::string::npos) {
      std::string line = pending_.substr(0, end);
      pending_.erase(0, end + 1);
      return line;
    }
    std::array<char, 512> part;
    const ssize_t n = read(fd_, part.data(), part.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return std::nullopt;
    pending_.append(part.data(), static_cast<std::size_t>(n));
  }
}

void DriverSocket::write_line(const std::string& line) {
  const std::string text = line + "\n";
  if (send(fd_, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size())) {
    throw std::system_error(errno, std::generic_category(), "cannot answer the driver");
  }
}

std::string congestion_in_use() {
  std::set<std::string> names;
  for (int fd = 0; fd < 1024; ++fd) {
    tcp_info info{};
    socklen_t length = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 || info.tcpi_state != TCP_ESTABLISHED)
      continue;
    std::array<char, 17> name{};  // TCP_CA_NAME_MAX and an end
    length = name.size() - 1;
    if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) == 0) names.insert(name.data());
  }
  std::string all;
  for (const std::string& name : names) all += (all.empty() ? "" : ",") + name;
  return all.empty() ? "-" : all;
}

}  // namespace peers
