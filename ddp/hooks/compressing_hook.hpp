// CompressingHook: what the hooks that compress f32 share. One rank and other types bypass them.
#pragma once

#include <atomic>

#include "lockstep/ddp/communication_hook.hpp"

namespace lockstep::internal {

class CompressingHook : public CommunicationHook {
 public:
  void attach(Communicator& communicator, const BucketPlan& plan,
              std::span<const Parameter> parameters) final;
  Work start(Communicator& communicator, const GradientBucket& bucket) final;
  void finish(const GradientBucket& bucket) final;
  std::uint64_t bytes_on_wire() const final { return bytes_.load(std::memory_order_relaxed); }

 protected:
  /// As CommunicationHook's calls of like names, for buckets that compresses() is true of.
  virtual void prepare(const BucketPlan& plan, std::span<const Parameter> parameters) = 0;
  virtual Work compress(Communicator& communicator, const GradientBucket& bucket) = 0;
  virtual void decompress(const GradientBucket& bucket) = 0;

  /// All_reduce of the bucket as it is.
  Work send_as_is(Communicator& communicator, const GradientBucket& bucket);
  void count_bytes(std::size_t bytes) { bytes_.fetch_add(bytes, std::memory_order_relaxed); }

  static bool compresses(DataType type, std::size_t count) { return type == DataType::f32 && count > 0; }
  bool compresses(const BucketPlan::Bucket& bucket) const { return compresses(bucket.type, bucket.count); }
  int ranks() const { return ranks_; }
  int rank() const { return rank_; }
  /// What the sum over all ranks is multiplied by.
  float weight(const GradientBucket& bucket) const {
    return bucket.average ? 1.0f / static_cast<float>(ranks_) : 1.0f;
  }

 private:
  int ranks_ = 1;
  int rank_ = 0;
  std::atomic<std::uint64_t> bytes_{0};
};

inline float* floats(const GradientBucket& bucket) { return static_cast<float*>(bucket.data); }

}  // namespace lockstep::internal
