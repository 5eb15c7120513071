#include "ddp/undo_copy.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "lib/reduce/copy.hpp"
#include "lockstep/error.hpp"

namespace lockstep::internal {
namespace {

/// Whole huge pages where the kernel grants them: fewer faults in the first step.
constexpr std::size_t kBlockAlignment = 2u << 20;

std::size_t rounded_up(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

void UndoCopy::Free::operator()(std::byte* block) const noexcept { std::free(block); }

void UndoCopy::attach(const BucketPlan& plan) {
  std::size_t end = 0;
  std::size_t parts = 0;
  begins_.clear();
  for (const BucketPlan::Bucket& bucket : plan.buckets) {
    begins_.push_back(end);
    end += rounded_up(bucket.count * size_of(bucket.type), BucketPlan::kAlignment);
    parts += bucket.parts.size();
  }
  touched_.assign(begins_.size(), 0);
  kept_.clear();
  kept_.reserve(parts);
  if (end <= reserved_) return;
  const std::size_t whole = rounded_up(end, kBlockAlignment);
  block_.reset(static_cast<std::byte*>(std::aligned_alloc(kBlockAlignment, whole)));
  reserved_ = block_ ? whole : 0;
  if (!block_) {
    throw Error(ErrorCode::out_of_memory, "no memory for the undo copy of " + std::to_string(end) +
                                              " bytes of gradients; ReducerOptions::undo = false needs none");
  }
  static_cast<void>(::madvise(block_.get(), whole, MADV_HUGEPAGE));
}

void UndoCopy::keep(std::size_t index, std::byte* data, std::size_t offset, std::size_t bytes) noexcept {
  std::byte* copy = block_.get() + begins_[index] + offset;
  constexpr bool kPastCaches = true;  // It is read again only when the step fails.
  copy_bytes(copy, data + offset, bytes, kPastCaches);
  kept_.push_back({data + offset, copy, bytes});
  touched_[index] = std::max(touched_[index], offset + bytes);
}

void UndoCopy::restore() noexcept {
  for (const Kept& kept : kept_) {
    copy_bytes(kept.home, kept.copy, kept.bytes);
  }
  kept_.clear();
}

std::size_t UndoCopy::bytes() const noexcept {
  return std::accumulate(touched_.begin(), touched_.end(), std::size_t{0});
}

}  // namespace lockstep::internal
