// Bounce: the memory in which the links of one transport lend payload (Link::borrow).
#pragma once

#include <cstddef>
#include <span>

#include "lib/base/aligned_bytes.hpp"
#include "transports/tcp/limits.hpp"

namespace lockstep::internal {

/// One block for all links: what is lent is consumed before the next link lends, so that the block stays in
/// the core's cache and a rank with a thousand peers pays for one. Not thread-safe.
class Bounce {
 public:
  class Tenant {
   public:
    virtual ~Tenant() = default;
    /// Another link needs the block: the tenant saves what it has not consumed.
    virtual void vacate() = 0;
  };

  /// The block, for `tenant` until another one takes it. It keeps its contents for the tenant that has it
  /// already. Room for a header lies before it and behind it, so that one piece of memory takes a payload and
  /// the headers around it.
  std::span<std::byte> take(Tenant& tenant) {
    if (!memory_) memory_ = make_aligned(sizeof(FrameHeader) + kBounceBytes + sizeof(FrameHeader));
    if (tenant_ != &tenant && tenant_ != nullptr) tenant_->vacate();
    tenant_ = &tenant;
    return {memory_.get() + sizeof(FrameHeader), kBounceBytes};
  }
  /// The tenant needs it no more, or ends.
  void leave(const Tenant& tenant) {
    if (tenant_ == &tenant) tenant_ = nullptr;
  }

 private:
  AlignedBytes memory_;  // From the first take() on.
  Tenant* tenant_ = nullptr;
};

}  // namespace lockstep::internal
