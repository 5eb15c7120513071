// The rate that TCP gets from the link between the two hosts, without the library: what communication is held
// against.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

#include "bench/ddp/two_hosts.hpp"

namespace lockstep::bench {
namespace {

// What 25 M f32 parameters send; long enough for the stream to find its rate.
constexpr std::size_t kBytes = 100u << 20;
constexpr std::size_t kPiece = 256u << 10;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {
    if (fd < 0) throw std::system_error(errno, std::generic_category(), "measuring the link");
  }
  ~Socket() { close(fd_); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

sockaddr_in address_of(int host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  inet_pton(AF_INET, TwoHosts::address(host).c_str(), &address.sin_addr);
  return address;
}

void check(bool good) {
  if (!good) throw std::system_error(errno, std::generic_category(), "measuring the link");
}

void send_all(int fd) {
  const std::vector<char> piece(kPiece);
  for (std::size_t sent = 0; sent < kBytes;) {
    const ssize_t n = send(fd, piece.data(), std::min(kPiece, kBytes - sent), MSG_NOSIGNAL);
    check(n > 0);
    sent += static_cast<std::size_t>(n);
  }
}

/// Seconds from the first byte to the last.
double receive_all(int fd) {
  std::vector<char> piece(kPiece);
  std::chrono::steady_clock::time_point first;
  for (std::size_t received = 0; received < kBytes;) {
    const ssize_t n = recv(fd, piece.data(), kPiece, 0);
    check(n > 0);
    if (received == 0) first = std::chrono::steady_clock::now();
    received += static_cast<std::size_t>(n);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - first).count();
}

/// Sends and receives at once, as both hosts do in an all_reduce.
double exchange(int fd) {
  std::exception_ptr failure;
  std::thread sender([&] {
    try {
      send_all(fd);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  double seconds = 0;
  try {
    seconds = receive_all(fd);
  } catch (...) {
    shutdown(fd, SHUT_RDWR);  // The sender must not wait for a peer that reads no more.
    sender.join();
    throw;
  }
  sender.join();
  if (failure) std::rethrow_exception(failure);
  return seconds;
}

}  // namespace

double TwoHosts::measure_link() const {
  enter(0);
  const Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = address_of(0, 0);
  socklen_t length = sizeof address;
  check(bind(listener.fd(), reinterpret_cast<sockaddr*>(&address), length) == 0 &&
        listen(listener.fd(), 1) == 0 &&
        getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  double there = 0;
  std::exception_ptr failure;
  std::thread peer([&] {
    try {
      enter(1);
      const Socket stream(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      check(connect(stream.fd(), reinterpret_cast<sockaddr*>(&address), length) == 0);
      there = exchange(stream.fd());
    } catch (...) {
      failure = std::current_exception();
      shutdown(listener.fd(), SHUT_RDWR);  // Ends the accept below.
    }
  });
  double here = 0;
  std::exception_ptr own_failure;
  try {
    const Socket stream(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
    here = exchange(stream.fd());
  } catch (...) {
    own_failure = std::current_exception();
  }
  peer.join();
  if (failure) std::rethrow_exception(failure);
  if (own_failure) std::rethrow_exception(own_failure);
  return 8e-9 * static_cast<double>(kBytes) / std::max(here, there);
}

}  // namespace lockstep::bench
