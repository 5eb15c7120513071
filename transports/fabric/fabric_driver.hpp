// FabricDriver: steps a fabric for all its links, and sees to it that nobody sleeps on what one link's step
// brought to another.
#pragma once

#include <poll.h>

#include <memory>
#include <vector>

#include "lib/net/fd.hpp"
#include "transports/fabric/fabric.hpp"

namespace lockstep::internal {

class FabricDriver {
 public:
  static Result<std::unique_ptr<FabricDriver>> make(std::unique_ptr<Fabric> fabric);

  Fabric& fabric() { return *fabric_; }
  /// Fabric::progress. What moves after arm() rings the bell: whom it concerns may have looked before.
  bool progress();
  /// From now on what is new makes one of the entries readable.
  void arm();
  void append_poll_entries(std::vector<pollfd>& entries) const;
  /// A peer has said on one of its links that nothing follows. Where the fabric keeps one order that ends all
  /// of its links, those too that it does not know.
  void note_farewell(int peer);
  bool has_left(int peer) const;
  /// In a forked child: what the fabric shares with the parent must stay as it is.
  void abandon() { static_cast<void>(fabric_.release()); }

 private:
  FabricDriver(std::unique_ptr<Fabric> fabric, Fd bell)
      : fabric_(std::move(fabric)), bell_(std::move(bell)) {}

  std::unique_ptr<Fabric> fabric_;
  const Fd bell_;
  bool armed_ = false;
  bool rung_ = false;
  std::vector<int> left_;
};

}  // namespace lockstep::internal
