// DeviceDomain: ranks of one host whose devices can address each other's memory. Phases, offers and doorbells
// are those of a host domain; staging areas and registered buffers are device memory.
#pragma once

#include <memory>
#include <vector>

#include "collectives/device/shared_buffers.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

class DeviceDomain final : public Domain {
 public:
  /// `host` and `buffers` outlive it. `staging`: the areas of all members as this rank's device addresses
  /// them.
  DeviceDomain(Domain& host, std::vector<std::byte*> staging, std::size_t staging_bytes,
               SharedBuffers& buffers);

  std::byte* staging(int member) override { return staging_[static_cast<std::size_t>(member)]; }
  Result<std::byte*> resolve(int member, const SegmentRef& ref, std::size_t bytes) override {
    return buffers_.resolve(member, ref, bytes);
  }
  void ring(int member) override { host_.ring(member); }
  int bell_fd() override { return host_.bell_fd(); }

 private:
  Domain& host_;
  const std::vector<std::byte*> staging_;
  SharedBuffers& buffers_;
};

/// Makes a domain on top of the one of `host`, a transport in shared memory, which it keeps. Has no links:
/// everything runs in the domain.
std::unique_ptr<Transport> make_device_transport(std::unique_ptr<Transport> host,
                                                 std::vector<std::byte*> staging, std::size_t staging_bytes,
                                                 SharedBuffers& buffers);

}  // namespace lockstep::internal
