// Sends and receives of DeviceCommunicator, one at a time and in batches.
#include <utility>
#include <vector>

#include "collectives/device/device_core.hpp"
#include "collectives/forked_child.hpp"

namespace lockstep {

using internal::DeviceCore;
using internal::DeviceMessage;
using internal::Message;
using internal::Status;

/// `buffer` is only read for a send.
static DeviceMessage checked(DeviceCore& core, bool is_send, void* buffer, std::size_t count, DataType type,
                             int peer, Stream stream) {
  internal::refuse_in_forked_child();
  const Message message{is_send, buffer, count, type, peer, 0, 0};
  if (!is_send && peer == kAnySource)
    throw Error(ErrorCode::not_supported, "a receive on a device needs its source: name a rank");
  internal::check_message(message, core.engine().group().size()).throw_if_error();
  return {is_send, buffer, count * size_of(type), peer, stream, type};
}

void DeviceCommunicator::send(const void* buffer, std::size_t count, DataType type, int destination,
                              Stream stream, const DeviceCallOptions& options) {
  const DeviceMessage message =
      checked(*core_, true, const_cast<void*>(buffer), count, type, destination, stream);
  core_->caller().start({message}, options).throw_if_error();
}

void DeviceCommunicator::recv(void* buffer, std::size_t count, DataType type, int source, Stream stream,
                              const DeviceCallOptions& options) {
  const DeviceMessage message = checked(*core_, false, buffer, count, type, source, stream);
  core_->caller().start({message}, options).throw_if_error();
}

struct DeviceBatch::State {
  std::shared_ptr<DeviceCore> core;
  std::vector<DeviceMessage> messages;
};

DeviceBatch::DeviceBatch(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
DeviceBatch::DeviceBatch(DeviceBatch&&) noexcept = default;
DeviceBatch& DeviceBatch::operator=(DeviceBatch&&) noexcept = default;
DeviceBatch::~DeviceBatch() = default;

DeviceBatch DeviceCommunicator::batch() {
  return DeviceBatch(std::unique_ptr<DeviceBatch::State>(new DeviceBatch::State{core_, {}}));
}

void DeviceBatch::send(const void* buffer, std::size_t count, DataType type, int destination, Stream stream) {
  state_->messages.push_back(
      checked(*state_->core, true, const_cast<void*>(buffer), count, type, destination, stream));
}

void DeviceBatch::recv(void* buffer, std::size_t count, DataType type, int source, Stream stream) {
  state_->messages.push_back(checked(*state_->core, false, buffer, count, type, source, stream));
}

void DeviceBatch::submit(const DeviceCallOptions& options) {
  internal::refuse_in_forked_child();
  std::vector<DeviceMessage> messages = std::exchange(state_->messages, {});
  state_->core->caller().start(std::move(messages), options).throw_if_error();
}

}  // namespace lockstep
