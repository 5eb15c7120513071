// The choice of an interface, from lists that machines really have.
#include "lib/net/interfaces.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::internal {
namespace {

const std::vector<InterfaceAddress> kNode{
    {"lo", "127.0.0.1", true, false},      {"docker0", "172.17.0.1", false, false},
    {"eth1", "fd00::2", false, true},      {"eth1", "10.1.0.2", false, false},
    {"eth10", "10.10.0.2", false, false},  {"ib0", "10.9.0.2", false, false},
    {"veth1234", "10.2.0.1", false, false}};

std::string chosen(std::span<const InterfaceAddress> available, std::string_view filter) {
  auto result = choose_interface(available, filter);
  return result.ok() ? result->address : result.status().message();
}

TEST(ChooseInterface, PrefersWhatReachesOtherHosts) {
  EXPECT_EQ(chosen(kNode, ""), "10.9.0.2");
  EXPECT_EQ(chosen(std::span(kNode).first(5), ""), "10.1.0.2");
  EXPECT_EQ(chosen(std::span(kNode).first(3), ""), "fd00::2");
  EXPECT_EQ(chosen(std::span(kNode).first(2), ""), "172.17.0.1");
}

TEST(ChooseInterface, SpeaksTheFilterSyntaxOfNccl) {
  EXPECT_EQ(chosen(kNode, "eth1"), "10.1.0.2");
  EXPECT_EQ(chosen(kNode, "=eth10"), "10.10.0.2");
  EXPECT_EQ(chosen(kNode, "^ib,eth1"), "172.17.0.1");
  EXPECT_EQ(chosen(kNode, "^=ib0,eth1"), "10.10.0.2");
  EXPECT_EQ(chosen(kNode, "nosuch,veth"), "10.2.0.1");
  EXPECT_EQ(chosen(kNode, "lo"), "127.0.0.1");
}

TEST(ChooseInterface, SaysWhatThereWas) {
  EXPECT_EQ(chosen(std::span(kNode).first(2), "=eth"),
            "no network interface that LOCKSTEP_IFNAME==eth admits is up; this machine has: lo (127.0.0.1), "
            "docker0 "
            "(172.17.0.1)");
  EXPECT_EQ(chosen(std::span(kNode).first(1), ""),
            "no network interface that other hosts could reach is up; this machine has: lo (127.0.0.1)");
  EXPECT_EQ(chosen({}, ""),
            "no network interface that other hosts could reach is up; this machine has: none");
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
