// What a DeviceReducer does to whole buckets beside their collectives, as operations of a stream.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lib/device/backend.hpp"
#include "lockstep/ddp/bucket_plan.hpp"
#include "lockstep/ddp/parameter.hpp"

namespace lockstep::internal {

/// Gaps between gradients count as gradients: they are zero.
class GradientKernels {
 public:
  /// Memory for so many buckets, and parameters.
  GradientKernels(Backend& backend, int device, std::size_t buckets, std::size_t parameters = 0);
  ~GradientKernels();
  GradientKernels(const GradientKernels&) = delete;
  GradientKernels& operator=(const GradientKernels&) = delete;

  // ---- elements that are not finite
  /// Enqueues: what is not finite in bucket `index` becomes zero, and the first such element is noted.
  void scrub(std::size_t index, const BucketPlan::Bucket& bucket, std::byte* data, DeviceStream stream);
  /// Enqueues: the first element that is not finite is noted, of the gradients i with has_gradient[i] != 0.
  /// Nothing is changed.
  void look(std::size_t index, const BucketPlan::Bucket& bucket, std::byte* data,
            std::span<const std::uint8_t> has_gradient, DeviceStream stream);
  /// Waits for the stream. Of every bucket the first element that was found the last time, or kNone.
  std::vector<std::uint64_t> found(DeviceStream stream);
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  /// Enqueues: the bucket times `factor`, with the bits of scale_gradients().
  void scale(const BucketPlan::Bucket& bucket, std::byte* data, double factor, DeviceStream stream);

  /// Enqueues a hash of each parameter's values, and waits for it. Equal bits have equal hashes, on every
  /// device.
  std::vector<std::uint64_t> hash_values(std::span<const Parameter> parameters, DeviceStream stream);

  // ---- the norm over all buckets
  /// Enqueues: the buckets of `plan`, which lie at `data`, are scaled so that the norm over all of them is at
  /// most `max_norm`; `norm`, memory that the device reaches, or null, gets what it was. Not finite: nothing
  /// is scaled.
  void clip(const BucketPlan& plan, std::span<std::byte* const> data, double max_norm, double* norm,
            DeviceStream stream);

 private:
  std::vector<std::uint64_t> read(std::size_t words, DeviceStream stream);

  Backend& backend_;
  const int device_;
  std::byte* memory_;     ///< Of what follows.
  std::uint64_t* words_;  ///< By bucket: what was found. By parameter: hashes.
  double *slots_, *factor_;
  std::uint64_t* read_;  ///< Pinned: where words_ are copied to.
  const std::size_t buckets_;
};

}  // namespace lockstep::internal
