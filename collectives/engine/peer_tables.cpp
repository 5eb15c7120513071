#include "collectives/engine/peer_tables.hpp"

#include <new>

namespace lockstep::internal {

bool PeerTables::flush() try {
  const bool moved = plain_->flush();
  return (urgent_ && urgent_->flush()) || moved;
} catch (const std::bad_alloc&) {
  return false;
}

void PeerTables::drop_posted() {
  if (plain_) plain_->drop_posted();
  if (urgent_) urgent_->drop_posted();
}

/// A word on the link for collectives may stay behind what was sent before and the peer never takes. That is
/// what the one on the urgent link is for: it is missed where there was no time for it.
bool PeerTables::may_have_missed_word(int peer) const {
  const bool missed = in_either([peer](const PeerTable& table) { return table.has_missed(peer); });
  const bool heard = in_either([peer](const PeerTable& table) { return table.needs_no_word(peer); });
  return (missed && !heard) || (urgent_ && urgent_->was_late(peer));
}

}  // namespace lockstep::internal
