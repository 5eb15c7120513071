#include "ddp/device/device_buckets.hpp"

#include <utility>

#include "ddp/bucket_plan.hpp"

namespace lockstep::internal {

DeviceBlock::DeviceBlock(Backend& backend, DeviceCommunicator& communicator,
                         const std::vector<std::size_t>& bytes, DeviceStream stream)
    : DeviceBlock() {  // From here on the destructor runs, whatever fails.
  std::size_t total = 0;
  for (const std::size_t part : bytes) total += whole_pages(part);
  parts_.resize(bytes.size());
  if (total == 0) return;
  block_ = static_cast<std::byte*>(allocate_device(total, communicator.device()));
  backend.fill(block_, 0, total, stream).throw_if_error();
  communicator.register_window(block_, total, true);
  communicator_ = &communicator;
  std::byte* next = block_;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] > 0) parts_[i] = std::exchange(next, next + whole_pages(bytes[i]));
  }
}

DeviceBlock& DeviceBlock::operator=(DeviceBlock&& other) noexcept {
  std::swap(communicator_, other.communicator_);
  std::swap(block_, other.block_);
  std::swap(parts_, other.parts_);
  return *this;
}

DeviceBlock::~DeviceBlock() {
  if (block_ == nullptr) return;
  const auto leave = [](const auto& step) {
    try {
      step();
    } catch (const Error&) {  // The device is lost, and its memory with it.
    }
  };
  if (communicator_ != nullptr) leave([this] { communicator_->deregister(block_); });
  leave([this] { free_device(block_); });
}

void DeviceBuckets::add(Backend& backend, DeviceCommunicator& communicator, const BucketPlan& more,
                        std::size_t parameters, DeviceStream stream) {
  blocks_.emplace_back(backend, communicator, std::vector{BucketPlaces::bytes_for(more)}, stream);
  places_.add(more, blocks_.back().part(0), parameters);
}

std::vector<std::byte*> DeviceBuckets::starts_of(const BucketPlan& plan) const {
  std::vector<std::byte*> starts;
  for (const BucketPlan::Bucket& bucket : plan.buckets) starts.push_back(start_of(bucket));
  return starts;
}

}  // namespace lockstep::internal
