#include "bench/ddp/two_hosts.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <system_error>

namespace lockstep::bench {
namespace {

// A bucket of TBF must hold the largest packet that segmentation offload hands down, 64 KiB, and the bytes of
// some scheduler ticks; the queue behind it is as deep as a usual switch's.
constexpr const char* kQueue = "burst 256kb latency 50ms";

[[noreturn]] void refuse(const std::string& what, int error) {
  throw std::system_error(error, std::generic_category(),
                          what + " (--hosts 2 needs root or unprivileged user namespaces)");
}

void write_file(const char* path, const std::string& text) {
  std::ofstream file(path);
  if (!(file << text).flush()) refuse(std::string("cannot write ") + path, errno);
}

/// Root of a user namespace of its own may create networks, too.
void become_root() {
  const std::string user = std::to_string(geteuid()), group = std::to_string(getegid());
  if (unshare(CLONE_NEWUSER) != 0) refuse("cannot create a user namespace", errno);
  write_file("/proc/self/setgroups", "deny");
  write_file("/proc/self/uid_map", "0 " + user + " 1");
  write_file("/proc/self/gid_map", "0 " + group + " 1");
}

int create_network() {
  if (unshare(CLONE_NEWNET) != 0) refuse("cannot create a network namespace", errno);
  const int fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  if (fd < 0) refuse("cannot open /proc/self/ns/net", errno);
  return fd;
}

/// Runs a command of iproute2; its complaint becomes an exception.
void run(const std::string& command) {
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) throw std::system_error(errno, std::generic_category(), "cannot run " + command);
  std::string output;
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) output += static_cast<char>(c == '\n' ? ' ' : c);
  const int status = pclose(pipe);
  if (status == 0) return;
  constexpr int kNotFound = 127;
  const bool absent = WIFEXITED(status) && WEXITSTATUS(status) == kNotFound;
  throw std::runtime_error(
      "\"" + command + "\" failed: " + output +
      (absent ? "(install the package iproute2)" : "(--hosts 2 needs veth and the tbf queue in the kernel)"));
}

}  // namespace

TwoHosts::TwoHosts(const std::string& rate) {
  if (geteuid() != 0) become_root();
  for (int& network : network_) network = create_network();
  enter(0);
  // The descriptor is not inherited by the command, but can be opened by it.
  const std::string other = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(network_[1]);
  run("ip link add " + interface(0) + " type veth peer name " + interface(1) + " netns " + other);
  for (const int host : {1, 0}) {
    enter(host);
    const std::string link = interface(host);
    run("ip link set lo up");
    run("ip address add " + address(host) + "/24 dev " + link);
    run("ip link set " + link + " up");
    run("tc qdisc add dev " + link + " root tbf rate " + rate + " " + kQueue);
  }
}

TwoHosts::~TwoHosts() {
  for (const int network : network_) close(network);
}

void TwoHosts::enter(int host) const {
  if (setns(network_[host], CLONE_NEWNET) != 0) refuse("cannot enter a network namespace", errno);
}

std::string TwoHosts::address(int host) { return "10.177.0." + std::to_string(host + 1); }

std::string TwoHosts::interface(int host) { return "lockstep" + std::to_string(host); }

/// Columns of /proc/net/dev behind the name: eight of what was received, then bytes sent.
std::uint64_t TwoHosts::bytes_sent(int host) {
  constexpr int kColumnsBefore = 8;
  std::ifstream file("/proc/thread-self/net/dev");
  for (std::string line; std::getline(file, line);) {
    const auto colon = line.find(interface(host) + ":");
    if (colon == std::string::npos) continue;
    std::istringstream columns(line.substr(line.find(':') + 1));
    std::uint64_t value = 0;
    for (int column = 0; column <= kColumnsBefore; ++column) columns >> value;
    return value;
  }
  throw std::runtime_error("/proc/net/dev does not list " + interface(host));
}

}  // namespace lockstep::bench
