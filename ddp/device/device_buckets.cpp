#include "ddp/device/device_buckets.hpp"

#include <numeric>
#include <utility>

#include "ddp/bucket_plan.hpp"

namespace lockstep::internal {
namespace {

std::size_t whole_pages(std::size_t bytes) {
  return (bytes + kBucketAlignment - 1) / kBucketAlignment * kBucketAlignment;
}

}  // namespace

DeviceBlock::DeviceBlock(Backend& backend, DeviceCommunicator& communicator,
                         const std::vector<std::size_t>& bytes, DeviceStream stream) {
  std::size_t total = 0;
  for (const std::size_t part : bytes) total += whole_pages(part);
  parts_.resize(bytes.size());
  if (total == 0) return;
  block_ = static_cast<std::byte*>(allocate_device(total, communicator.device()));
  backend.fill(block_, 0, total, stream).throw_if_error();
  communicator.register_buffer(block_, total);
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

std::vector<std::size_t> bucket_bytes(const BucketPlan& plan) {
  std::vector<std::size_t> bytes;
  for (const BucketPlan::Bucket& bucket : plan.buckets) bytes.push_back(bucket.count * size_of(bucket.type));
  return bytes;
}

std::vector<std::byte*> gradient_places(const BucketPlan& plan, const DeviceBlock& buckets,
                                        std::size_t parameters) {
  std::vector<std::byte*> places(parameters);
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    for (const GradientPart& part : plan.buckets[b].parts) {
      // The pieces of a split gradient follow each other, and are whole pages but for the last.
      if (part.first == 0)
        places[part.parameter] = buckets.part(b) + part.offset * size_of(plan.buckets[b].type);
    }
  }
  return places;
}

}  // namespace lockstep::internal
