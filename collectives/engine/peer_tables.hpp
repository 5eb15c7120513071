// PeerTables: the links of a communicator, and the order on them.
#pragma once

#include <memory>

#include "collectives/engine/peer_table.hpp"

namespace lockstep::internal {

/// A table for urgent calls, from the first of them on, and one for all others. Not thread-safe (the engine's
/// lock guards it).
class PeerTables {
 public:
  /// Without a transport there are none.
  PeerTables(Transport* transport, int size, int self) : transport_(transport), size_(size), self_(self) {
    if (transport_ != nullptr)
      plain_ = std::make_unique<PeerTable>(*transport_, Channel::collective, size_, self_);
  }

  PeerTable& of(bool urgent) {
    if (!urgent) return *plain_;
    if (!urgent_) urgent_ = std::make_unique<PeerTable>(*transport_, Channel::urgent, size_, self_);
    return *urgent_;
  }

  bool has_posted() const {
    return in_either([](const PeerTable& table) { return table.has_posted(); });
  }
  /// Whether what is posted has yet to get a link.
  bool awaits_link() const {
    return in_either([](const PeerTable& table) { return table.awaits_link(); });
  }
  /// As PeerTable::flush(). What there is no memory for stays posted.
  bool flush();
  void drop_posted();
  /// Whether `peer` may not have heard why the communicator ended.
  bool may_have_missed_word(int peer) const;

 private:
  template <class Holds>
  bool in_either(Holds&& holds) const {
    return (plain_ && holds(*plain_)) || (urgent_ && holds(*urgent_));
  }

  Transport* const transport_;
  const int size_, self_;
  std::unique_ptr<PeerTable> plain_, urgent_;
};

}  // namespace lockstep::internal
