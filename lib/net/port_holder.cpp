#include "lib/net/port_holder.hpp"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>

namespace lockstep::internal {
namespace {

/// A local address as the tables of /proc/net have it, without its port: whole words, as they lie in memory.
std::string table_text(const sockaddr& address) {
  const bool v6 = address.sa_family == AF_INET6;
  std::array<std::uint32_t, 4> words{};
  if (v6) {
    std::memcpy(words.data(), &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, sizeof(in6_addr));
  } else {
    std::memcpy(words.data(), &reinterpret_cast<const sockaddr_in&>(address).sin_addr, sizeof(in_addr));
  }
  std::string text;
  for (std::size_t i = 0; i < (v6 ? 4 : 1); ++i) {
    std::array<char, 9> word{};
    std::snprintf(word.data(), word.size(), "%08X", words[i]);
    text += word.data();
  }
  return text;
}

/// An address of IPv4 in the form of IPv6 is the same one.
std::string without_mapping(const std::string& text) {
  static constexpr std::string_view kMapped = "0000000000000000FFFF0000";
  return text.starts_with(kMapped) ? text.substr(kMapped.size()) : text;
}

bool is_all_addresses(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

/// The inode of the socket that listens at `address`, or on its port at all addresses, from a table of the
/// form of /proc/net/tcp.
std::optional<std::string> listening_inode(const char* table, const sockaddr& address) {
  static constexpr std::string_view kListening = "0A";
  const std::uint16_t port =
      ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);  // In v6 there too.
  const std::string wanted = without_mapping(table_text(address));
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
    const std::string at = without_mapping(local.substr(0, colon));
    if (at != wanted && !is_all_addresses(at) && !is_all_addresses(wanted)) continue;
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

std::string describe_port_holder(const sockaddr& address) {
  std::optional<std::string> inode = listening_inode("/proc/self/net/tcp", address);
  if (!inode) inode = listening_inode("/proc/self/net/tcp6", address);
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
