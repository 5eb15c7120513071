#include "lib/net/port_holder.hpp"

#include <dirent.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

namespace lockstep::internal {
namespace {

/// The inode of the socket that listens on `port`, from a table of the form of /proc/net/tcp.
std::optional<std::string> listening_inode(const char* table, std::uint16_t port) {
  static constexpr std::string_view kListening = "0A";
  std::ifstream file(table);
  std::string line;
  std::getline(file, line);  // The heading.
  while (std::getline(file, line)) {
    // sl local_address rem_address st tx_queue:rx_queue tr:when retrnsmt uid timeout inode
    std::istringstream fields(line);
    std::string slot, local, remote, state, skip, inode;
    fields >> slot >> local >> remote >> state;
    for (int i = 0; i < 5; ++i) fields >> skip;
    fields >> inode;
    const std::size_t colon = local.rfind(':');
    if (colon == std::string::npos || state != kListening) continue;
    if (std::strtoul(local.c_str() + colon + 1, nullptr, 16) == port) return inode;
  }
  return std::nullopt;
}

using Directory = std::unique_ptr<DIR, int (*)(DIR*)>;

bool holds(const std::string& process_directory, const std::string& socket) {
  const std::string descriptors = process_directory + "/fd";
  Directory directory(opendir(descriptors.c_str()), closedir);
  if (!directory) return false;
  while (const dirent* entry = readdir(directory.get())) {
    std::array<char, 64> target{};
    const ssize_t length =
        readlink((descriptors + "/" + entry->d_name).c_str(), target.data(), target.size() - 1);
    if (length > 0 && socket == target.data()) return true;
  }
  return false;
}

std::string describe_process(const std::string& pid) {
  std::string name;
  std::getline(std::ifstream("/proc/" + pid + "/comm"), name);
  return "process " + pid + (name.empty() ? "" : " (" + name + ")");
}

}  // namespace

std::string describe_port_holder(std::uint16_t port) {
  std::optional<std::string> inode = listening_inode("/proc/self/net/tcp", port);
  if (!inode) inode = listening_inode("/proc/self/net/tcp6", port);
  if (!inode) return "an unknown process";
  const std::string socket = "socket:[" + *inode + "]";
  Directory processes(opendir("/proc"), closedir);
  while (const dirent* entry = processes ? readdir(processes.get()) : nullptr) {
    const std::string pid = entry->d_name;
    if (pid.find_first_not_of("0123456789") == std::string::npos && holds("/proc/" + pid, socket)) {
      return describe_process(pid);
    }
  }
  return "a process that this user may not see";
}

}  // namespace lockstep::internal
