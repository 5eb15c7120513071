// UcxRegion: memory that UCX has mapped once (ucp_mem_map), so that no transfer looks for its registration;
// and UcxRemoteKey: a peer's region, as puts name it.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "transports/ucx/ucx_context.hpp"

namespace lockstep::internal {

class UcxRegion {
 public:
  static Result<std::shared_ptr<UcxRegion>> map(std::shared_ptr<UcxContext> context, void* memory,
                                                std::size_t bytes);
  ~UcxRegion() { context_->ucx.mem_unmap(context_->handle, handle_); }
  UcxRegion(const UcxRegion&) = delete;
  UcxRegion& operator=(const UcxRegion&) = delete;

  ucp_mem_h handle() const { return handle_; }
  /// For peers that put: a packed remote key.
  std::span<const std::byte> key() const { return std::as_bytes(std::span(key_)); }

 private:
  UcxRegion(std::shared_ptr<UcxContext> context, ucp_mem_h handle)
      : context_(std::move(context)), handle_(handle) {}

  const std::shared_ptr<UcxContext> context_;
  const ucp_mem_h handle_;
  std::string key_;
};

struct DestroyKey {
  const UcxLibrary* ucx;
  void operator()(ucp_rkey_h key) const { ucx->rkey_destroy(key); }
};
/// To be destroyed when what it was used for is over.
using UcxRemoteKey = std::unique_ptr<ucp_rkey, DestroyKey>;

}  // namespace lockstep::internal
