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
  void end_step(bool good) final { settle(good); }
  std::vector<HookTensor> state() final;
  std::uint64_t bytes_on_wire() const final { return bytes_.load(std::memory_order_relaxed); }

 protected:
  /// As CommunicationHook's calls of like names, for buckets that compresses() is true of. With one rank only
  /// prepare(), which needs no memory then, and add_state().
  virtual void prepare(const BucketPlan& plan, std::span<const Parameter> parameters) = 0;
  virtual Work compress(Communicator& communicator, const GradientBucket& bucket) = 0;
  virtual void decompress(const GradientBucket& bucket) = 0;
  /// As end_step(), of hooks that keep something.
  virtual void settle(bool good) { static_cast<void>(good); }
  /// What is kept of a part of a gradient.
  virtual void add_state(std::vector<HookTensor>& list, std::size_t bucket, const GradientPart& part,
                         const Parameter& parameter) {
    static_cast<void>(list), static_cast<void>(bucket), static_cast<void>(part), static_cast<void>(parameter);
  }
  /// A part of what was not sent of a bucket; of an empty one, with one rank, the name alone.
  HookTensor residual_of(const GradientPart& part, const Parameter& parameter, std::span<float> bucket) const;

  /// All_reduce of the bucket as it is.
  Work send_as_is(Communicator& communicator, const GradientBucket& bucket);
  void count_bytes(std::size_t bytes) { bytes_.fetch_add(bytes, std::memory_order_relaxed); }

  static bool compresses(DataType type, std::size_t count) { return type == DataType::f32 && count > 0; }
  bool compresses(const BucketPlan::Bucket& bucket) const { return compresses(bucket.type, bucket.count); }
  int ranks() const { return ranks_; }
  bool alone() const { return ranks_ == 1; }
  int rank() const { return rank_; }
  /// What the sum over all ranks is multiplied by.
  float weight(const GradientBucket& bucket) const {
    return bucket.average ? 1.0f / static_cast<float>(ranks_) : 1.0f;
  }

 private:
  const BucketPlan* plan_ = nullptr;
  std::span<const Parameter> parameters_;
  int ranks_ = 1;
  int rank_ = 0;
  std::atomic<std::uint64_t> bytes_{0};
};

inline float* floats(const GradientBucket& bucket) { return static_cast<float*>(bucket.data); }

}  // namespace lockstep::internal
