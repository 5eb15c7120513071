#include "transports/sim/sim_transport.hpp"

namespace lockstep::internal {

Link* SimTransport::ready_link(SimConnection& connection, int peer) const {
  const int side = member_ < peer ? 0 : 1;
  if (!connection.accepted[side] || network_.schedule_.now() < connection.ready_at[side]) return nullptr;
  return &connection.links[side];
}

Result<Link*> SimTransport::link(int peer, Channel channel) {
  SimConnection* connection = network_.find(member_, peer, channel);
  if (connection == nullptr) connection = &network_.connect(member_, peer, channel);
  connection->accepted[member_ < peer ? 0 : 1] = true;
  return ready_link(*connection, peer);
}

Status SimTransport::service() {
  network_.accept_all(member_);
  return {};
}

Link* SimTransport::existing_link(int peer, Channel channel) {
  SimConnection* connection = network_.find(member_, peer, channel);
  return connection == nullptr ? nullptr : ready_link(*connection, peer);
}

}  // namespace lockstep::internal
