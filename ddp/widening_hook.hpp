// f16 and bf16 buckets, added up in f32 on the whole way (ReducerOptions::half_in_f32).
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>

#include "ddp/registered_block.hpp"
#include "lockstep/ddp/communication_hook.hpp"

namespace lockstep::internal {

/// Whether buckets of this type are widened.
inline bool widens(DataType type) { return type == DataType::f16 || type == DataType::bf16; }

/// Each gradient is rounded once, whatever the number of ranks and the way of the messages. Twice the bytes.
/// Buckets of other types travel as they are.
class WideningHook final : public CommunicationHook {
 public:
  /// What multiplies this rank's gradients of the types that are widened. Between steps.
  void set_factor(double factor) noexcept { factor_ = static_cast<float>(factor); }

  std::string name() const override { return "half in f32"; }
  void attach(Communicator& communicator, const BucketPlan& plan,
              std::span<const Parameter> parameters) override;
  Work start(Communicator& communicator, const GradientBucket& bucket) override;
  void finish(const GradientBucket& bucket) override;
  std::uint64_t bytes_on_wire() const override { return bytes_; }

 private:
  float* wide(const GradientBucket& bucket) const {
    return reinterpret_cast<float*>(wide_.part(bucket.index));
  }

  float factor_ = 1;
  RegisteredBlock wide_;  // A part for each bucket.
  std::atomic<std::uint64_t> bytes_{0};
};

}  // namespace lockstep::internal
