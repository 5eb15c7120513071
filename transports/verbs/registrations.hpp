// Registrations: which memory the device may reach. Memory of lockstep::allocate is registered when it is
// first used and stays so; other memory is never registered, since nobody tells when it is unmapped.
#pragma once

#include <list>
#include <memory>
#include <span>

#include "lib/memory/segment.hpp"
#include "transports/verbs/verbs_device.hpp"

namespace lockstep::internal {

class Registrations {
 public:
  explicit Registrations(std::shared_ptr<VerbsDevice> device) : device_(std::move(device)) {}
  ~Registrations();
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;

  /// New memory that peers may write to, for the fabric's own use. A forked child does not copy it, so its
  /// pages stay where the device knows them.
  Result<std::span<std::byte>> allocate(std::size_t bytes);

  /// The registration that holds all of this memory; nullptr when it is neither the fabric's own nor of a
  /// segment, or cannot be registered.
  ibv_mr* find(const void* memory, std::size_t bytes);

 private:
  struct Own {
    std::span<std::byte> memory;
    ibv_mr* region;
  };
  struct Kept {
    SegmentRef segment;  // With offset 0.
    std::uintptr_t begin, end;
    ibv_mr* region;
  };
  void drop(std::list<Kept>::iterator kept);
  void drop_stale();

  const std::shared_ptr<VerbsDevice> device_;
  std::list<Own> own_;
  std::list<Kept> kept_;  // Last used first.
};

}  // namespace lockstep::internal
