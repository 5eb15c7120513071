// UcxPeer: what a worker knows of one peer, and what the peer has told of itself.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "lib/net/abstract_socket.hpp"
#include "transports/transport.hpp"
#include "transports/ucx/ucx_library.hpp"

namespace lockstep::internal {

/// What a rank tells its peers: how UCX reaches its worker, and what shows those on its host that the worker
/// is open to them.
struct UcxIdentity {
  std::string address, life_sign;
};
std::string encode(const UcxIdentity& identity);
std::optional<UcxIdentity> decode_ucx_identity(std::string_view text);

/// The endpoint to one peer, which all channels use.
struct UcxPeer {
  int rank = 0;
  std::string address;
  std::string life_sign;  ///< Empty: it cannot be seen here.
  ucp_ep_h endpoint = nullptr;
  bool watched = false;         ///< UCX tells of this peer's failure, and can end the endpoint by force.
  bool puts = false;            ///< It writes to landings here that are mapped; see ucx_transfers.cpp.
  bool puts_by_device = false;  ///< Else UCX on this side writes for it.
  bool left_over = false;       ///< A wire ended before its transfers did.
  bool heard = false;           ///< It has sent something, so it knows of this rank and says when it leaves.
  bool has_left = false;        ///< Its life sign is down.
  Status failure;
  std::array<bool, kChannels> has_wire{};

  /// UCX ends no endpoint by force that is not watched. Where it writes for the peer it goes on to, and may
  /// end the process over answers to puts that are still to be sent.
  bool ends_by_force() const { return watched && (!puts || puts_by_device); }
  /// Whether its life sign is down.
  bool closed() const { return !life_sign.empty() && is_down(life_sign); }
  Status closed_the_communicator() const;
  /// The first failure stays.
  void fail(const UcxLibrary& ucx, ucs_status_t status);
};

}  // namespace lockstep::internal
