#include "lib/net/interfaces.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <tuple>

namespace lockstep::internal {
namespace {

// Interfaces that usually lead to containers on this machine only.
constexpr std::array<std::string_view, 6> kBridges{"docker", "veth", "virbr", "br-", "cni", "lxc"};

std::optional<InterfaceAddress> describe(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr || (entry.ifa_flags & IFF_UP) == 0) return std::nullopt;
  InterfaceAddress result;
  result.name = entry.ifa_name;
  result.loopback = (entry.ifa_flags & IFF_LOOPBACK) != 0;
  result.v6 = entry.ifa_addr->sa_family == AF_INET6;
  const void* address = nullptr;
  if (result.v6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(*entry.ifa_addr).sin6_addr;
    if (IN6_IS_ADDR_LINKLOCAL(&v6)) return std::nullopt;
    address = &v6;
  } else if (entry.ifa_addr->sa_family == AF_INET) {
    address = &reinterpret_cast<const sockaddr_in&>(*entry.ifa_addr).sin_addr;
  } else {
    return std::nullopt;
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(entry.ifa_addr->sa_family, address, text.data(), text.size());
  result.address = text.data();
  return result;
}

struct Filter {
  bool exact = false;
  bool exclude = false;
  std::vector<std::string_view> names;

  explicit Filter(std::string_view text) {
    if (text.starts_with('^')) exclude = true, text.remove_prefix(1);
    if (text.starts_with('=')) exact = true, text.remove_prefix(1);
    while (!text.empty()) {
      const std::size_t comma = std::min(text.find(','), text.size());
      if (comma > 0) names.push_back(text.substr(0, comma));
      text.remove_prefix(std::min(comma + 1, text.size()));
    }
  }
  bool admits(std::string_view name) const {
    const bool named = std::any_of(names.begin(), names.end(), [&](std::string_view wanted) {
      return exact ? name == wanted : name.starts_with(wanted);
    });
    return named != exclude;
  }
};

bool is_bridge(std::string_view name) {
  return std::any_of(kBridges.begin(), kBridges.end(),
                     [&](std::string_view prefix) { return name.starts_with(prefix); });
}

// Smaller is better.
auto preference(const InterfaceAddress& address) {
  return std::tuple(address.loopback, is_bridge(address.name), !address.name.starts_with("ib"), address.v6);
}

std::string list_of(std::span<const InterfaceAddress> addresses) {
  std::string text;
  for (const auto& address : addresses)
    text += (text.empty() ? "" : ", ") + address.name + " (" + address.address + ")";
  return text.empty() ? "none" : text;
}

}  // namespace

Result<std::vector<InterfaceAddress>> interface_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return system_error("cannot list the network interfaces", errno);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<InterfaceAddress> result;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (auto address = describe(*entry)) result.push_back(std::move(*address));
  }
  return result;
}

Result<InterfaceAddress> choose_interface(std::span<const InterfaceAddress> available,
                                          std::string_view text) {
  const Filter filter(text);
  const InterfaceAddress* best = nullptr;
  for (const auto& candidate : available) {
    if (text.empty() ? candidate.loopback : !filter.admits(candidate.name)) continue;
    if (best == nullptr || preference(candidate) < preference(*best)) best = &candidate;
  }
  if (best != nullptr) return *best;
  const std::string wanted =
      text.empty() ? "that other hosts could reach" : "that LOCKSTEP_IFNAME=" + std::string(text) + " admits";
  return Status(ErrorCode::configuration,
                "no network interface " + wanted + " is up; this machine has: " + list_of(available));
}

}  // namespace lockstep::internal
