#include "ddp/device/device_undo.hpp"

#include <span>
#include <string>
#include <utility>

#include "lockstep/error.hpp"

namespace lockstep::internal {

DeviceUndo::~DeviceUndo() {
  const DeviceScope scope(backend_, device_);  // The thread may be any.
  if (block_ != nullptr) static_cast<void>(backend_.free(block_));
}

void DeviceUndo::use_plan(const BucketPlan& plan) {
  places_.clear();
  std::size_t end = 0;
  for (const BucketPlan::Bucket& bucket : plan.buckets) {
    places_.push_back({.begin = end});
    const std::size_t bytes = bucket.count * size_of(bucket.type);
    end += (bytes + BucketPlan::kAlignment - 1) / BucketPlan::kAlignment * BucketPlan::kAlignment;
  }
  if (end <= bytes_) return;
  if (block_ != nullptr) backend_.free(std::exchange(block_, nullptr)).throw_if_error();
  bytes_ = 0;
  const Result<void*> block = backend_.allocate(device_, end);
  if (!block.ok()) {
    throw Error(ErrorCode::out_of_memory, "no memory for the undo copy of " + std::to_string(end) +
                                              " bytes of gradients (" + block.status().message() +
                                              "); DeviceReducerOptions::undo = false needs none");
  }
  block_ = static_cast<std::byte*>(block.value());
  bytes_ = end;
}

void DeviceUndo::keep(std::size_t index, std::byte* data, std::size_t bytes, DeviceStream stream) {
  Place& place = places_[index];
  backend_.copy(block_ + place.begin, data, bytes, stream).throw_if_error();
  place.home = data;
  place.bytes = bytes;
}

void DeviceUndo::restore(std::size_t buckets, DeviceStream stream) {
  for (const Place& place : std::span(places_).first(buckets)) {
    if (place.bytes > 0)
      backend_.copy(place.home, block_ + place.begin, place.bytes, stream).throw_if_error();
  }
}

}  // namespace lockstep::internal
