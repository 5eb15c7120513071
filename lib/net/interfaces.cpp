#include "lib/net/interfaces.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <memory>
#include <optional>
#include <tuple>

#include "lib/base/foreign_variables.hpp"

namespace lockstep::internal {
namespace {

// Bridges that usually lead to containers on this machine only.
constexpr std::array<std::string_view, 5> kBridges{"docker", "virbr", "br-", "cni", "lxc"};

bool is_link_local(const in_addr& v4) {
  constexpr std::uint32_t kNetwork = 0xA9FE;  // 169.254
  return ntohl(v4.s_addr) >> 16 == kNetwork;
}

std::int64_t speed_of(const std::string& interface) {
  std::int64_t megabits = 0;
  std::ifstream("/sys/class/net/" + interface + "/speed") >> megabits;  // Absent, or -1, where unknown.
  return std::max<std::int64_t>(megabits, 0);
}

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
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(*entry.ifa_addr).sin_addr;
    if (is_link_local(v4)) return std::nullopt;
    address = &v4;
  } else {
    return std::nullopt;
  }
  std::array<char, INET6_ADDRSTRLEN> text{};
  inet_ntop(entry.ifa_addr->sa_family, address, text.data(), text.size());
  result.address = text.data();
  result.megabits = speed_of(result.name);
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
  bool names_what_it_wants() const { return !exclude && !names.empty(); }
  bool admits(std::string_view name) const {
    if (names.empty()) return true;
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
  return std::tuple(address.loopback, is_bridge(address.name), address.name.starts_with("veth"),
                    !address.name.starts_with("ib"), -address.megabits, address.v6);
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

InterfaceFilter interface_filter_from_environment() {
  const ForeignText found = config_text_or("LOCKSTEP_IFNAME", {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"});
  const bool names_are_exact = found.variable == "GLOO_SOCKET_IFNAME";
  return {found.variable, (names_are_exact ? "=" : "") + found.value};
}

Result<std::vector<InterfaceAddress>> usable_interfaces(std::span<const InterfaceAddress> available,
                                                        const InterfaceFilter& wanted) {
  const Filter filter(wanted.text);
  std::vector<InterfaceAddress> result;
  for (const auto& candidate : available) {
    const bool by_accident =
        !filter.names_what_it_wants() && (candidate.loopback || is_bridge(candidate.name));
    if (!by_accident && filter.admits(candidate.name)) result.push_back(candidate);
  }
  std::stable_sort(result.begin(), result.end(),
                   [](const auto& a, const auto& b) { return preference(a) < preference(b); });
  if (!result.empty()) return result;
  const std::string which = wanted.text.empty() ? "that other hosts could reach"
                                                : "that " + wanted.variable + "=" + wanted.text + " admits";
  return Status(ErrorCode::configuration, "no network interface " + which + " is up; this machine has: " +
                                              list_of(available) + "; name the right one in LOCKSTEP_IFNAME");
}

}  // namespace lockstep::internal
