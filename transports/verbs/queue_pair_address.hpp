// What a rank tells a peer about its end of an RDMA connection.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep::internal {

/// Where a port is reached.
struct PortAddress {
  std::array<std::uint8_t, 16> gid{};
  std::uint16_t lid = 0;    ///< InfiniBand only.
  std::uint8_t mtu = 0;     ///< ibv_mtu.
  std::uint8_t routed = 0;  ///< By GID: RoCE, and InfiniBand where a port wants it so.
};
static_assert(sizeof(PortAddress) == 20);

struct QueuePairAddress {
  PortAddress port;
  std::uint32_t number = 0;
  std::uint32_t first_packet = 0;
};
static_assert(sizeof(QueuePairAddress) == 28);

}  // namespace lockstep::internal
