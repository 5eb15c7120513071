// What a rank says of its RDMA device, for all ranks of the job to decide by.
#include <array>
#include <cstdio>

#include "transports/verbs/verbs_device.hpp"
#include "transports/verbs/verbs_transport.hpp"

namespace lockstep::internal {

std::string verbs_offer(const VerbsDevice& device, int world) {
  if (!queue_sizes(world, device.limits()).ok() || !device.may_lock()) return {};
  if (device.on_ethernet()) return "roce";
  // The first half of an address is its subnet: InfiniBand's subnets do not reach each other.
  std::string text = "infiniband ";
  for (std::size_t i = 0; i < 8; ++i) {
    std::array<char, 3> digits{};
    std::snprintf(digits.data(), digits.size(), "%02x", device.address().gid[i]);
    text += digits.data();
  }
  return text;
}

}  // namespace lockstep::internal
