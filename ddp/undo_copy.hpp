// UndoCopy: gradients as they were before a step changed them in place, so that a step that fails leaves them
// untouched.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "lockstep/ddp/bucket_plan.hpp"

namespace lockstep::internal {

/// One thread at a time.
class UndoCopy {
 public:
  /// Reserves room for the buckets of `plan`; memory is touched where something is kept. Forgets. Throws
  /// Error(out_of_memory).
  void attach(const BucketPlan& plan);

  /// Copies the `bytes` at `offset` of bucket `index`, which begins at `data`; once for each byte of a step.
  void keep(std::size_t index, std::byte* data, std::size_t offset, std::size_t bytes) noexcept;
  /// What was kept goes back to where it came from.
  void restore() noexcept;
  void forget() noexcept { kept_.clear(); }

  /// Memory in use: of the bytes kept so far, at their most.
  std::size_t bytes() const noexcept;

 private:
  struct Kept {
    std::byte* home;
    const std::byte* copy;
    std::size_t bytes;
  };
  struct Free {
    void operator()(std::byte* block) const noexcept;
  };
  std::unique_ptr<std::byte, Free> block_;
  std::size_t reserved_ = 0;
  std::vector<std::size_t> begins_;   // Of each bucket, in the block.
  std::vector<std::size_t> touched_;  // Of each bucket: its first bytes that were in use.
  std::vector<Kept> kept_;
};

}  // namespace lockstep::internal
