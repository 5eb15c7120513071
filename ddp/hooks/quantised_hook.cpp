// One byte an element. Codes with scales cannot be added up on their way, so the ranks exchange them:
// - two ranks send each other their whole buckets and both add them up. P bytes each, rounded once.
// - n > 2 ranks cut the bucket into n chunks. All_to_all brings all versions of chunk r to rank r, which adds
//   them up in f32, encodes the sum, and all_gather spreads it. 2 (n - 1) / n P bytes each, where all_gather
//   of whole buckets would cost (n - 1) P; rounded twice.
// Both roundings are fed back: what is lost in the second is added to the owner's gradient of the next step.
#include <algorithm>

#include "ddp/hooks/block_codec.hpp"
#include "ddp/hooks/compressing_hook.hpp"
#include "ddp/hooks/residual.hpp"
#include "ddp/registered_block.hpp"
#include "lockstep/ddp/hooks.hpp"

namespace lockstep {
namespace {

using internal::floats;
using internal::Into;

constexpr std::size_t kMaxBlock = 65536;

class QuantisedHook final : public internal::CompressingHook {
 public:
  explicit QuantisedHook(const QuantiseOptions& options)
      : options_(options), codec_(options.type, options.block) {}

  std::string name() const override {
    return std::string(name_of(options_.type)) + " block " + std::to_string(options_.block) +
           (options_.error_feedback ? " with error feedback" : "");
  }

 private:
  struct State {
    std::size_t chunk = 0;        // Elements; the last chunks of a bucket may have fewer, or none.
    std::size_t chunk_bytes = 0;  // Encoded; the same for all.
    internal::Residual residual;  // With error feedback.
  };

  void prepare(const BucketPlan& plan, std::span<const Parameter> parameters) override;
  Work compress(Communicator& communicator, const GradientBucket& bucket) override;
  void decompress(const GradientBucket& bucket) override;
  void add_state(std::vector<HookTensor>& list, std::size_t bucket, const GradientPart& part,
                 const Parameter& parameter) override {
    if (options_.error_feedback)
      list.push_back(residual_of(part, parameter, states_[bucket].residual.kept()));
  }
  void settle(bool good) override {
    for (State& state : states_) state.residual.end_step(good);
  }

  bool exchanges_whole_buckets() const { return ranks() == 2; }
  std::size_t chunks() const { return internal::BlockLayout::chunks(ranks()); }
  std::byte* sent(std::size_t bucket) const { return memory_.part(2 * bucket); }
  std::byte* received(std::size_t bucket) const { return memory_.part(2 * bucket + 1); }
  std::span<float> chunk_of(const State& state, std::span<float> all, std::size_t index) const;
  void encode_own(State& state, const GradientBucket& bucket);
  void encode_sum(State& state, const GradientBucket& bucket);

  const QuantiseOptions options_;
  const internal::BlockCodec codec_;
  std::vector<State> states_;
  internal::RegisteredBlock memory_;
  std::vector<float> sum_;  // Of the chunk that is this rank's to add up.
};

void QuantisedHook::prepare(const BucketPlan& plan, std::span<const Parameter>) {
  states_.assign(plan.buckets.size(), {});
  std::vector<std::size_t> bytes;
  for (std::size_t b = 0; b < states_.size(); ++b) {
    State& state = states_[b];
    if (!compresses(plan.buckets[b]) || alone()) {
      bytes.insert(bytes.end(), {0, 0});
      continue;
    }
    const std::size_t count = plan.buckets[b].count;
    state.chunk = codec_.layout().chunk_elements(count, ranks());
    state.chunk_bytes = codec_.encoded_bytes(state.chunk);
    if (options_.error_feedback) state.residual.resize(count, true);
    bytes.push_back(chunks() * state.chunk_bytes);
    bytes.push_back(static_cast<std::size_t>(ranks()) * state.chunk_bytes);
  }
  memory_ = internal::RegisteredBlock(bytes);
}

std::span<float> QuantisedHook::chunk_of(const State& state, std::span<float> all, std::size_t index) const {
  const std::size_t first = std::min(index * state.chunk, all.size());
  return all.subspan(first, internal::BlockLayout::chunk_count(state.chunk, all.size(), index));
}

/// The gradients of this rank, with what was left behind, as codes.
void QuantisedHook::encode_own(State& state, const GradientBucket& bucket) {
  std::span<float> source(floats(bucket), bucket.count);
  if (options_.error_feedback) source = state.residual.add(floats(bucket));
  for (std::size_t c = 0; c < chunks(); ++c) {
    const std::span<float> chunk = chunk_of(state, source, c);
    std::byte* to = sent(bucket.index) + c * state.chunk_bytes;
    codec_.encode(chunk, to);
    if (!options_.error_feedback) continue;
    codec_.decode(to, -1, chunk, Into::add);
    codec_.drop_lost(to, chunk);
  }
}

/// This rank's chunk of the sum, as codes, where all_gather takes it from.
void QuantisedHook::encode_sum(State& state, const GradientBucket& bucket) {
  const auto self = static_cast<std::size_t>(rank());
  const std::span<float> own = chunk_of(state, {floats(bucket), bucket.count}, self);
  sum_.assign(own.size(), 0.0f);
  for (std::size_t r = 0; r < chunks(); ++r) {
    codec_.decode(received(bucket.index) + r * state.chunk_bytes, 1, sum_, Into::add);
  }
  std::byte* to = sent(bucket.index) + self * state.chunk_bytes;
  codec_.encode(sum_, to);
  if (!options_.error_feedback) return;
  codec_.decode(to, -1, sum_, Into::add);
  codec_.drop_lost(to, sum_);
  const std::span<float> residual = chunk_of(state, state.residual.next(), self);
  for (std::size_t i = 0; i < sum_.size(); ++i) residual[i] += sum_[i];
}

Work QuantisedHook::compress(Communicator& communicator, const GradientBucket& bucket) {
  State& state = states_[bucket.index];
  encode_own(state, bucket);
  std::byte* out = sent(bucket.index);
  std::byte* in = received(bucket.index);
  count_bytes(chunks() * state.chunk_bytes);
  if (exchanges_whole_buckets()) {
    return communicator.all_gather_async(out, in, state.chunk_bytes, DataType::u8);
  }
  communicator.all_to_all(out, in, state.chunk_bytes, DataType::u8);
  encode_sum(state, bucket);
  count_bytes(state.chunk_bytes);
  const std::byte* own = out + static_cast<std::size_t>(rank()) * state.chunk_bytes;
  return communicator.all_gather_async(own, out, state.chunk_bytes, DataType::u8);
}

void QuantisedHook::decompress(const GradientBucket& bucket) {
  const State& state = states_[bucket.index];
  const std::span<float> all(floats(bucket), bucket.count);
  if (exchanges_whole_buckets()) {
    codec_.decode(received(bucket.index), weight(bucket), all, Into::replace);
    return codec_.decode(received(bucket.index) + state.chunk_bytes, weight(bucket), all, Into::add);
  }
  for (std::size_t c = 0; c < chunks(); ++c) {
    codec_.decode(sent(bucket.index) + c * state.chunk_bytes, weight(bucket), chunk_of(state, all, c),
                  Into::replace);
  }
}

}  // namespace

std::shared_ptr<CommunicationHook> make_quantised_hook(const QuantiseOptions& options) {
  const bool known =
      options.type == DataType::i8 || options.type == DataType::f8e4m3 || options.type == DataType::f8e5m2;
  if (!known) {
    throw Error(ErrorCode::invalid_argument, "make_quantised_hook: no codes of type " +
                                                 std::string(name_of(options.type)) +
                                                 "; pass i8, f8e4m3 or f8e5m2");
  }
  if (options.block == 0 || options.block % 4 != 0 || options.block > kMaxBlock) {
    throw Error(ErrorCode::invalid_argument,
                "make_quantised_hook: a block of " + std::to_string(options.block) +
                    " elements; choose a multiple of 4 up to " + std::to_string(kMaxBlock));
  }
  return std::make_shared<QuantisedHook>(options);
}

}  // namespace lockstep
