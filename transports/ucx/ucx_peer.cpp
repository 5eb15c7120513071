#include "transports/ucx/ucx_peer.hpp"

#include "lib/bootstrap/wire.hpp"

namespace lockstep::internal {

std::string encode(const UcxIdentity& identity) {
  std::string text;
  WireWriter writer(text);
  writer.text(identity.life_sign);
  writer.text(identity.address);
  return text;
}

// UCX is told no length of an address: it would read whatever lies behind an empty one.
std::optional<UcxIdentity> decode_ucx_identity(std::string_view text) {
  WireReader reader(as_bytes(text));
  std::string_view life_sign, address;
  const bool whole = reader.text(text.size(), life_sign) && reader.text(text.size(), address);
  if (!whole || reader.left() > 0 || address.empty()) return std::nullopt;
  return UcxIdentity{std::string(address), std::string(life_sign)};
}

Status UcxPeer::closed_the_communicator() const {
  return Status(ErrorCode::peer_lost, "rank " + std::to_string(rank) + " closed the communicator", rank);
}

void UcxPeer::fail(const UcxLibrary& ucx, ucs_status_t status) {
  if (!failure.ok()) return;
  failure = Status(ErrorCode::peer_lost,
                   "rank " + std::to_string(rank) + " is gone: UCX says: " + ucx.status_string(status), rank);
}

}  // namespace lockstep::internal
