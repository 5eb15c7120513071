// Codes of one byte with a scale a block. As the host's hook (ddp/hooks/quantised_hook.cpp): two ranks
// exchange whole buckets; more of them exchange chunks, each rank adds its own up in f32 and spreads the sum,
// encoded again. Encoded: the scales, then the codes, padded to whole scales.
#include <algorithm>

#include "ddp/bucket_gaps.hpp"
#include "ddp/device/device_buckets.hpp"
#include "ddp/device/device_carrier.hpp"
#include "ddp/hooks/block_codec.hpp"

namespace lockstep::internal {
namespace {

class QuantisedCarrier final : public DeviceCarrier {
 public:
  QuantisedCarrier(const DeviceRoute& route, const BucketPlan& plan, DataType type, std::size_t block);
  void start(std::size_t index, const BucketPlan::Bucket& bucket, std::byte* data, bool average) override;

 private:
  struct Chunk {
    std::size_t elements = 0;  ///< Of a chunk; the last ones of a bucket may have fewer, or none.
    std::size_t bytes = 0;     ///< Encoded; the same for all.
  };
  bool exchanges_whole_buckets() const { return route_.ranks() == 2; }
  std::size_t chunks() const { return BlockLayout::chunks(route_.ranks()); }
  Chunk chunk_of(std::size_t count) const;
  std::size_t scale_bytes(std::size_t count) const { return layout_.scale_bytes(count); }

  void encode(const float* from, std::size_t count, std::byte* to);
  void decode(const std::byte* from, std::size_t count, float factor, float* to, bool add);
  static std::size_t chunk_count(const Chunk& chunk, std::size_t count, std::size_t index) {
    return BlockLayout::chunk_count(chunk.elements, count, index);
  }
  void exchange_whole(const Chunk& chunk, std::size_t count, float* data, std::byte* sent,
                      std::byte* received, float weight);
  void exchange_chunks(const Chunk& chunk, std::size_t count, float* data, std::byte* sent,
                       std::byte* received, float weight);
  void clear_gaps(const BucketPlan::Bucket& bucket, std::byte* data);

  const DeviceRoute route_;
  const DataType type_;
  const BlockLayout layout_;
  const std::unique_ptr<DeviceCarrier> plain_;
  DeviceBlock memory_;  ///< Of each bucket what it sends and receives; then a sum.
};

QuantisedCarrier::QuantisedCarrier(const DeviceRoute& route, const BucketPlan& plan, DataType type,
                                   std::size_t block)
    : route_(route), type_(type), layout_{block}, plain_(make_plain_device_carrier(route)) {
  std::vector<std::size_t> bytes;
  std::size_t largest = 0;
  for (const BucketPlan::Bucket& bucket : plan.buckets) {
    const Chunk chunk = bucket.type == DataType::f32 ? chunk_of(bucket.count) : Chunk();
    bytes.push_back(chunks() * chunk.bytes);
    bytes.push_back(static_cast<std::size_t>(route.ranks()) * chunk.bytes);
    largest = std::max(largest, chunk.elements);
  }
  bytes.push_back(largest * sizeof(float));
  memory_ = DeviceBlock(route.backend, route.communicator, bytes, route.stream);
}

QuantisedCarrier::Chunk QuantisedCarrier::chunk_of(std::size_t count) const {
  const std::size_t elements = layout_.chunk_elements(count, route_.ranks());
  return {elements, layout_.encoded_bytes(elements)};
}

void QuantisedCarrier::encode(const float* from, std::size_t count, std::byte* to) {
  if (count == 0) return;
  route_.backend
      .quantise({type_, from, count, layout_.block, reinterpret_cast<float*>(to), to + scale_bytes(count)},
                route_.stream)
      .throw_if_error();
}

void QuantisedCarrier::decode(const std::byte* from, std::size_t count, float factor, float* to, bool add) {
  if (count == 0) return;
  route_.backend
      .dequantise({type_, reinterpret_cast<const float*>(from), from + scale_bytes(count), count,
                   layout_.block, factor, to, add},
                  route_.stream)
      .throw_if_error();
}

void QuantisedCarrier::exchange_whole(const Chunk& chunk, std::size_t count, float* data, std::byte* sent,
                                      std::byte* received, float weight) {
  encode(data, count, sent);
  route_.communicator.all_gather(sent, received, chunk.bytes, DataType::u8, route_.stream);
  count_bytes(chunk.bytes);
  decode(received, count, weight, data, false);
  decode(received + chunk.bytes, count, weight, data, true);
}

void QuantisedCarrier::exchange_chunks(const Chunk& chunk, std::size_t count, float* data, std::byte* sent,
                                       std::byte* received, float weight) {
  for (std::size_t c = 0; c < chunks(); ++c) {
    encode(data + c * chunk.elements, chunk_count(chunk, count, c), sent + c * chunk.bytes);
  }
  route_.communicator.all_to_all(sent, received, chunk.bytes, DataType::u8, route_.stream);
  const auto self = static_cast<std::size_t>(route_.communicator.rank());
  const std::size_t own = chunk_count(chunk, count, self);
  auto* const sum = reinterpret_cast<float*>(memory_.part(memory_.size() - 1));
  route_.backend.fill(sum, 0, own * sizeof(float), route_.stream).throw_if_error();
  for (std::size_t r = 0; r < chunks(); ++r) decode(received + r * chunk.bytes, own, 1, sum, true);
  encode(sum, own, sent + self * chunk.bytes);
  route_.communicator.all_gather(sent + self * chunk.bytes, sent, chunk.bytes, DataType::u8, route_.stream);
  count_bytes((chunks() + 1) * chunk.bytes);
  for (std::size_t c = 0; c < chunks(); ++c) {
    decode(sent + c * chunk.bytes, chunk_count(chunk, count, c), weight, data + c * chunk.elements, false);
  }
}

/// A NaN takes its whole block along, gaps between gradients included, and the next step would begin with it.
void QuantisedCarrier::clear_gaps(const BucketPlan::Bucket& bucket, std::byte* data) {
  for_each_gap(bucket.parts, bucket.count, [&](std::size_t first, std::size_t count) {
    route_.backend.fill(data + first * sizeof(float), 0, count * sizeof(float), route_.stream)
        .throw_if_error();
  });
}

void QuantisedCarrier::start(std::size_t index, const BucketPlan::Bucket& bucket, std::byte* data,
                             bool average) {
  std::byte *const sent = memory_.part(2 * index), *const received = memory_.part(2 * index + 1);
  if (sent == nullptr) return plain_->start(index, bucket, data, average);
  const Chunk chunk = chunk_of(bucket.count);
  auto* const floats = reinterpret_cast<float*>(data);
  if (exchanges_whole_buckets()) {
    exchange_whole(chunk, bucket.count, floats, sent, received, route_.weight(average));
  } else {
    exchange_chunks(chunk, bucket.count, floats, sent, received, route_.weight(average));
  }
  clear_gaps(bucket, data);
}

}  // namespace

std::unique_ptr<DeviceCarrier> make_quantised_device_carrier(const DeviceRoute& route, const BucketPlan& plan,
                                                             DataType type, std::size_t block) {
  return std::make_unique<QuantisedCarrier>(route, plan, type, block);
}

}  // namespace lockstep::internal
