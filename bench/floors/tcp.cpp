// The floor over TCP.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <system_error>

#include "bench/floors/floor.hpp"

namespace floors {
namespace {

constexpr std::size_t kPiece = 256u << 10;  // what was best of 64 KiB to 1 MiB
constexpr std::size_t kWhole = 8u << 10;    // to here both exchange all they have

void check(bool good, const char* what) {
  if (!good) throw std::system_error(errno, std::generic_category(), what);
}

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

int make_socket(const std::string& congestion) {
  const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  check(made >= 0, "socket");
  check(setsockopt(made, IPPROTO_TCP, TCP_CONGESTION, congestion.c_str(),
                   static_cast<socklen_t>(congestion.size())) == 0,
        "TCP_CONGESTION");
  return made;
}

bool allowed(const std::string& congestion) {
  try {
    return close(make_socket(congestion)) == 0;
  } catch (const std::system_error&) {
    return false;
  }
}

// Rank 0 listens at a port of the system's choice and writes it where rank 1 looks.
int listen_for_peer(const std::string& port_file, const std::string& congestion) {
  const int listener = make_socket(congestion);
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  check(bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0, "bind");
  check(listen(listener, 1) == 0, "listen");
  check(getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0, "getsockname");
  std::ofstream(port_file + ".new") << ntohs(address.sin_port);
  check(rename((port_file + ".new").c_str(), port_file.c_str()) == 0, "rename");
  const int peer = accept(listener, nullptr, nullptr);
  check(peer >= 0, "accept");
  close(listener);
  return peer;
}

int connect_to_peer(const std::string& port_file, const std::string& congestion) {
  int port = 0;
  while (!(std::ifstream(port_file) >> port)) sched_yield();
  const int peer = make_socket(congestion);
  const sockaddr_in address = loopback(port);
  check(connect(peer, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, "connect");
  return peer;
}

void add(char* to, const char* from, std::size_t bytes) {
  auto* __restrict out = reinterpret_cast<float*>(to);
  const auto* __restrict in = reinterpret_cast<const float*>(from);
  for (std::size_t i = 0; i < bytes / sizeof(float); ++i) out[i] += in[i];
}

}  // namespace

Tcp::Tcp(const peers::Place& place) : rank_(place.rank), folder_(place.folder), piece_(kPiece) {}

Tcp::~Tcp() {
  for (const auto& [name, connection] : connections_) close(connection);
}

bool Tcp::congestion(const std::string& name) {
  if (!connections_.contains(name)) {
    if (!allowed(name)) return false;
    const std::string port_file = folder_ + "/port-" + name;
    const int made = rank_ == 0 ? listen_for_peer(port_file, name) : connect_to_peer(port_file, name);
    connections_[name] = made;
    const int on = 1;
    check(setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0, "TCP_NODELAY");
    check(fcntl(made, F_SETFL, O_NONBLOCK) == 0, "O_NONBLOCK");
  }
  socket_ = connections_[name];
  return true;
}

Run Tcp::bind(std::size_t bytes, float* memory) {
  char* data = reinterpret_cast<char*>(memory);
  if (bytes <= kWhole) return [this, data, bytes] { whole(data, bytes); };
  return [this, data, bytes] { halves(data, bytes); };
}

void Tcp::whole(char* data, std::size_t bytes) {
  for (std::size_t sent = 0, received = 0; sent < bytes || received < bytes;) {
    if (sent < bytes)
      sent += static_cast<std::size_t>(std::max<ssize_t>(0, send(socket_, data + sent, bytes - sent, 0)));
    if (received < bytes) {
      received += static_cast<std::size_t>(
          std::max<ssize_t>(0, recv(socket_, piece_.data() + received, bytes - received, 0)));
    }
  }
  add(data, piece_.data(), bytes);
}

// Out go the peer's half as it is, then my half as it gets reduced; in come my half, then the peer's half
// reduced.
void Tcp::halves(char* data, std::size_t bytes) {
  const std::size_t half = bytes / 2 / sizeof(float) * sizeof(float);
  const std::size_t mine_bytes = rank_ == 0 ? half : bytes - half, theirs_bytes = bytes - mine_bytes;
  char *mine = data + (rank_ == 0 ? 0 : half), *theirs = data + (rank_ == 0 ? half : 0);
  const auto moved = [](ssize_t n) { return static_cast<std::size_t>(std::max<ssize_t>(0, n)); };
  std::size_t sent = 0, returned = 0, reduced = 0, held = 0, received = 0;
  while (sent < theirs_bytes || returned < mine_bytes || reduced < mine_bytes || received < theirs_bytes) {
    if (sent < theirs_bytes) {
      sent += moved(send(socket_, theirs + sent, std::min(kPiece, theirs_bytes - sent), 0));
    } else if (returned < reduced) {
      returned += moved(send(socket_, mine + returned, std::min(kPiece, reduced - returned), 0));
    }
    if (reduced < mine_bytes) {
      const std::size_t piece = std::min(kPiece, mine_bytes - reduced);
      held += moved(recv(socket_, piece_.data() + held, piece - held, 0));
      if (held < piece) continue;
      add(mine + reduced, piece_.data(), piece);
      reduced += piece;
      held = 0;
    } else if (received < theirs_bytes && sent == theirs_bytes) {
      received += moved(recv(socket_, theirs + received, theirs_bytes - received, 0));
    }
  }
}

}  // namespace floors
