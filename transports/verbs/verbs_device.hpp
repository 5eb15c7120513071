// VerbsDevice: one RDMA device of this process, opened, with its protection domain.
#pragma once

#include <memory>
#include <string>

#include "transports/verbs/queue_pair_address.hpp"
#include "transports/verbs/queue_sizes.hpp"
#include "transports/verbs/verbs_library.hpp"

namespace lockstep::internal {

class VerbsDevice : public std::enable_shared_from_this<VerbsDevice> {
 public:
  static Result<std::shared_ptr<VerbsDevice>> open(const VerbsLibrary& library, int rank);
  ~VerbsDevice();
  VerbsDevice(const VerbsDevice&) = delete;
  VerbsDevice& operator=(const VerbsDevice&) = delete;

  const VerbsLibrary& verbs() const { return verbs_; }
  ibv_context* context() const { return context_; }
  ibv_pd* domain() const { return domain_; }
  std::uint8_t port() const { return port_; }
  std::uint8_t gid_index() const { return gid_index_; }
  /// Of acknowledgements, as queue pairs want it.
  std::uint8_t timeout() const { return timeout_; }
  const PortAddress& address() const { return address_; }
  /// RoCE; else InfiniBand.
  bool on_ethernet() const { return port_state_.link_layer == IBV_LINK_LAYER_ETHERNET; }
  const DeviceLimits& limits() const { return limits_; }

  /// Registers memory, for peers to write to when `remote`, until the region ends. An exhausted limit of
  /// locked memory is named.
  Result<std::shared_ptr<ibv_mr>> register_memory(void* memory, std::size_t bytes, bool remote) const;
  /// Whether it may lock more memory than a few buffers.
  bool may_lock() const;

 private:
  explicit VerbsDevice(const VerbsLibrary& verbs) : verbs_(verbs) {}
  Status find(const std::string& wanted);
  Status use(ibv_device* device);
  bool choose_gid();
  Status read_limits();

  const VerbsLibrary& verbs_;
  ibv_context* context_ = nullptr;
  ibv_pd* domain_ = nullptr;
  ibv_port_attr port_state_{};
  std::uint8_t port_ = 0;
  std::uint8_t gid_index_ = 0;
  std::uint8_t timeout_ = 0;
  PortAddress address_;
  DeviceLimits limits_;
};

}  // namespace lockstep::internal
