// Top-k: the largest elements travel as indices and values through all_gather; what stays is kept for the
// next step.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "ddp/exact.hpp"
#include "ddp/hooks/compressing_hook.hpp"
#include "ddp/hooks/largest.hpp"
#include "ddp/hooks/residual.hpp"
#include "ddp/registered_block.hpp"
#include "lockstep/ddp/hooks.hpp"

namespace lockstep {
namespace {

using internal::floats;

class TopKHook final : public internal::CompressingHook {
 public:
  explicit TopKHook(const TopKOptions& options) : options_(options) {}
  std::string name() const override { return "top_k " + internal::exact(options_.share); }

 private:
  void prepare(const BucketPlan& plan, std::span<const Parameter> parameters) override;
  Work compress(Communicator& communicator, const GradientBucket& bucket) override;
  void decompress(const GradientBucket& bucket) override;
  void add_state(std::vector<HookTensor>& list, std::size_t bucket, const GradientPart& part,
                 const Parameter& parameter) override {
    list.push_back(residual_of(part, parameter, residuals_[bucket].kept()));
  }
  void settle(bool good) override {
    for (internal::Residual& residual : residuals_) residual.end_step(good);
  }

  std::size_t kept(std::size_t count) const {
    return std::max<std::size_t>(1, static_cast<std::size_t>(options_.share * static_cast<double>(count)));
  }
  /// A message: k indices, then the k values.
  static constexpr std::size_t kBytesOfOne = sizeof(std::uint32_t) + sizeof(float);

  const TopKOptions options_;
  std::vector<internal::Residual> residuals_;  // Of each bucket.
  internal::RegisteredBlock memory_;           // Of each bucket: the message sent, those received.
};

void TopKHook::prepare(const BucketPlan& plan, std::span<const Parameter>) {
  residuals_.assign(plan.buckets.size(), {});
  std::vector<std::size_t> bytes;
  for (std::size_t b = 0; b < residuals_.size(); ++b) {
    const std::size_t count = plan.buckets[b].count;
    const std::size_t message = compresses(plan.buckets[b]) && !alone() ? kept(count) * kBytesOfOne : 0;
    bytes.insert(bytes.end(), {message, static_cast<std::size_t>(ranks()) * message});
    if (message == 0) continue;
    if (count > std::numeric_limits<std::uint32_t>::max()) {
      throw Error(ErrorCode::not_supported,
                  "a bucket of " + std::to_string(count) +
                      " elements is too large for indices of 32 bits; choose a smaller "
                      "ReducerOptions::bucket_bytes");
    }
    residuals_[b].resize(count, true);
  }
  memory_ = internal::RegisteredBlock(bytes);
}

Work TopKHook::compress(Communicator& communicator, const GradientBucket& bucket) {
  const std::span<float> residual = residuals_[bucket.index].add(floats(bucket));
  const std::size_t k = kept(bucket.count);
  std::byte* message = memory_.part(2 * bucket.index);
  const std::span<std::uint32_t> indices(reinterpret_cast<std::uint32_t*>(message), k);
  auto* values = reinterpret_cast<float*>(indices.data() + k);
  internal::find_largest(residual, indices);
  for (std::size_t j = 0; j < k; ++j) values[j] = std::exchange(residual[indices[j]], 0.0f);
  // Where all that travels is not finite there may be more, of which the peers need not hear again.
  const auto lost = [](float value) { return !std::isfinite(value); };
  if (std::all_of(values, values + k, lost)) std::replace_if(residual.begin(), residual.end(), lost, 0.0f);
  count_bytes(k * kBytesOfOne);
  return communicator.all_gather_async(message, memory_.part(2 * bucket.index + 1), k * kBytesOfOne,
                                       DataType::u8);
}

void TopKHook::decompress(const GradientBucket& bucket) {
  float* sums = floats(bucket);
  std::fill_n(sums, bucket.count, 0.0f);
  const std::size_t k = kept(bucket.count);
  const float factor = weight(bucket);
  for (int r = 0; r < ranks(); ++r) {
    const std::byte* message =
        memory_.part(2 * bucket.index + 1) + static_cast<std::size_t>(r) * k * kBytesOfOne;
    const auto* indices = reinterpret_cast<const std::uint32_t*>(message);
    const auto* values = reinterpret_cast<const float*>(indices + k);
    for (std::size_t j = 0; j < k; ++j) {
      if (indices[j] >= bucket.count) {
        throw Error(ErrorCode::internal,
                    "rank " + std::to_string(r) + " sent index " + std::to_string(indices[j]) +
                        " of a bucket of " + std::to_string(bucket.count) + " elements",
                    r);
      }
      sums[indices[j]] += values[j] * factor;
    }
  }
}

}  // namespace

std::shared_ptr<CommunicationHook> make_top_k_hook(const TopKOptions& options) {
  if (!(options.share > 0 && options.share <= 1)) {
    throw Error(ErrorCode::invalid_argument, "make_top_k_hook: a share of " + std::to_string(options.share) +
                                                 " of the elements; choose one in (0, 1]");
  }
  return std::make_shared<TopKHook>(options);
}

}  // namespace lockstep
