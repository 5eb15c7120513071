// The choice of an interface, from lists that machines really have.
#include "lib/net/interfaces.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>

namespace lockstep::internal {
namespace {

const std::vector<InterfaceAddress> kNode{
    {"lo", "127.0.0.1", true, false},      {"docker0", "172.17.0.1", false, false},
    {"eth1", "fd00::2", false, true},      {"eth1", "10.1.0.2", false, false},
    {"eth10", "10.10.0.2", false, false},  {"ib0", "10.9.0.2", false, false},
    {"veth1234", "10.2.0.1", false, false}};

// The addresses in their order, or the error.
std::string usable(std::span<const InterfaceAddress> available, const InterfaceFilter& filter) {
  auto result = usable_interfaces(available, filter);
  if (!result.ok()) return result.status().message();
  std::string text;
  for (const InterfaceAddress& one : *result) text += (text.empty() ? "" : " ") + one.address;
  return text;
}
std::string usable(std::span<const InterfaceAddress> available, const char* filter) {
  return usable(available, InterfaceFilter{.text = filter});
}

TEST(UsableInterfaces, AreThoseThatReachOtherHosts) {
  EXPECT_EQ(usable(kNode, ""), "10.9.0.2 10.1.0.2 10.10.0.2 fd00::2 10.2.0.1");
  EXPECT_EQ(usable(std::span(kNode).first(5), ""), "10.1.0.2 10.10.0.2 fd00::2");
  EXPECT_EQ(usable(std::span(kNode).first(3), ""), "fd00::2");
}

TEST(UsableInterfaces, FasterOnesFirst) {
  const std::vector<InterfaceAddress> nics{{"eth0", "10.0.0.1", false, false, 1000},
                                           {"eth1", "10.0.1.1", false, false, 25000},
                                           {"eth1", "fd00::1", false, true, 25000},
                                           {"ib0", "10.0.2.1", false, false, 0}};
  EXPECT_EQ(usable(nics, ""), "10.0.2.1 10.0.1.1 fd00::1 10.0.0.1");
}

TEST(UsableInterfaces, SpeakTheFilterSyntaxOfNccl) {
  EXPECT_EQ(usable(kNode, "eth1"), "10.1.0.2 10.10.0.2 fd00::2");
  EXPECT_EQ(usable(kNode, "=eth10"), "10.10.0.2");
  EXPECT_EQ(usable(kNode, "^ib,eth1"), "10.2.0.1");
  EXPECT_EQ(usable(kNode, "^=ib0,eth1"), "10.10.0.2 10.2.0.1");
  EXPECT_EQ(usable(kNode, "nosuch,veth"), "10.2.0.1");
  for (const char* commas : {"ib0,", ",ib0", "ib0,,=none"}) EXPECT_EQ(usable(kNode, commas), "10.9.0.2");
}

TEST(UsableInterfaces, LoopbackAndBridgesOnlyByName) {
  EXPECT_EQ(usable(kNode, "lo"), "127.0.0.1");
  EXPECT_EQ(usable(kNode, "docker"), "172.17.0.1");
  EXPECT_EQ(usable(kNode, "^ib,eth,veth"),
            "no network interface that LOCKSTEP_IFNAME=^ib,eth,veth admits is up; this machine has: lo "
            "(127.0.0.1), docker0 (172.17.0.1), eth1 (fd00::2), eth1 (10.1.0.2), eth10 (10.10.0.2), ib0 "
            "(10.9.0.2), veth1234 (10.2.0.1); name the right one in LOCKSTEP_IFNAME");
}

TEST(UsableInterfaces, ErrorsSayWhatThereWasAndWhoAsked) {
  const std::string remedy = "; name the right one in LOCKSTEP_IFNAME";
  EXPECT_EQ(usable(std::span(kNode).first(2), {"NCCL_SOCKET_IFNAME", "=eth"}),
            "no network interface that NCCL_SOCKET_IFNAME==eth admits is up; this machine has: lo "
            "(127.0.0.1), docker0 (172.17.0.1)" +
                remedy);
  EXPECT_EQ(usable(std::span(kNode).first(2), ""),
            "no network interface that other hosts could reach is up; this machine has: lo (127.0.0.1), "
            "docker0 (172.17.0.1)" +
                remedy);
  EXPECT_EQ(usable({}, ""),
            "no network interface that other hosts could reach is up; this machine has: none" + remedy);
}

TEST(InterfaceFilter, TheFirstVariableThatIsSetWins) {
  const auto found = [] {
    const InterfaceFilter filter = interface_filter_from_environment();
    return filter.variable + " " + filter.text;
  };
  const char* const names[] = {"LOCKSTEP_IFNAME", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"};
  for (const char* name : names) unsetenv(name);
  EXPECT_EQ(found(), "LOCKSTEP_IFNAME ");
  setenv("GLOO_SOCKET_IFNAME", "eth0", 1);
  EXPECT_EQ(found(), "GLOO_SOCKET_IFNAME =eth0");
  setenv("NCCL_SOCKET_IFNAME", "", 1);
  EXPECT_EQ(found(), "GLOO_SOCKET_IFNAME =eth0");
  setenv("NCCL_SOCKET_IFNAME", "^docker", 1);
  EXPECT_EQ(found(), "NCCL_SOCKET_IFNAME ^docker");
  setenv("LOCKSTEP_IFNAME", "ib", 1);
  EXPECT_EQ(found(), "LOCKSTEP_IFNAME ib");
  for (const char* name : names) unsetenv(name);
}

TEST(InterfaceAddresses, ListThisMachinesLoopback) {
  auto addresses = interface_addresses();
  ASSERT_TRUE(addresses.ok());
  EXPECT_TRUE(std::any_of(addresses->begin(), addresses->end(), [](const InterfaceAddress& a) {
    return a.loopback && a.address == "127.0.0.1" && !a.v6;
  }));
}

}  // namespace
}  // namespace lockstep::internal
