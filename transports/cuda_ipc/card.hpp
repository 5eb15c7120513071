// Card: what the owner of an allocation shows to those who want to map it; one shared page.
//
// It says how large the allocation is, on which device, and its legacy handle if it has one. Who has the
// allocation mapped holds a lock on the card, which the kernel takes back when its process dies: so the owner
// can tell whether it may free, without counting and without knowing anybody's process number.
#pragma once

#include "lib/device/backend.hpp"
#include "lib/memory/mapping.hpp"

namespace lockstep::internal {

class OwnedCard {
 public:
  static Result<OwnedCard> make(const MemoryExport& memory, const DeviceIdentity& device);
  /// For the descriptor service.
  Result<Fd> descriptor() const;
  /// From now on nobody maps the allocation, and who has it mapped should let go.
  void withdraw();
  /// Whether a living process has it mapped.
  bool held() const;

 private:
  Fd descriptor_;
  Mapping page_;
};

class PeersCard {
 public:
  /// Checks that it is a card. It came from another process of this user.
  static Result<PeersCard> open(const Fd& descriptor);
  /// `memory`'s descriptor is left as it is.
  void describe(MemoryExport& memory) const;
  const std::array<std::uint8_t, 16>& device() const;
  bool withdrawn() const;
  /// Says that the allocation is mapped here, until this object goes. Then look whether it is withdrawn.
  Status hold();

 private:
  Mapping page_;
  Fd lock_;
};

}  // namespace lockstep::internal
