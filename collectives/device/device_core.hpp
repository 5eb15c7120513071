// DeviceCore: what a DeviceCommunicator handle points to.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "collectives/call_builder.hpp"
#include "lockstep/device.hpp"

namespace lockstep::internal {

/// One send or receive, checked.
struct DeviceMessage {
  bool is_send = false;
  void* buffer = nullptr;  ///< Read only for a send.
  std::uint64_t bytes = 0;
  int peer = 0;
  Stream stream = nullptr;
};

class DeviceCore {
 public:
  /// Collective over `communicator`.
  static Result<std::shared_ptr<DeviceCore>> make(CommunicatorCore& communicator, int device,
                                                  const DeviceOptions& options);
  virtual ~DeviceCore() = default;

  /// Whose group and sequence the calls belong to.
  virtual Engine& engine() = 0;
  virtual int device() const = 0;
  virtual DeviceMode mode() const = 0;
  virtual std::string describe() const = 0;

  /// Enqueues a collective. `copy_to`: where a broadcast's root wants its input as well; null: nowhere.
  virtual Status start(CallBuilder& call, Stream stream, const DeviceCallOptions& options,
                       void* copy_to = nullptr) = 0;
  /// Enqueues messages that do not wait for one another.
  virtual Status start(std::span<const DeviceMessage> messages, const DeviceCallOptions& options) = 0;

  virtual Status register_buffer(void* pointer, std::size_t bytes) = 0;
  virtual Status register_window(void* pointer, std::size_t bytes) = 0;
  virtual Status deregister(void* pointer) = 0;
  virtual bool is_registered(const void* pointer, std::size_t bytes) const = 0;

  virtual Status wait() = 0;
  /// Why the communicator is not usable any more.
  virtual Status state() = 0;
  virtual void abort(std::string_view reason) = 0;
  virtual Status finalize() = 0;
};

}  // namespace lockstep::internal
