// Buckets in the gradients' own types, and in a half type: encoded by a kernel, all_reduced, decoded by a
// kernel.
#include "ddp/device/device_buckets.hpp"
#include "ddp/device/device_carrier.hpp"

namespace lockstep::internal {
namespace {

class PlainCarrier : public DeviceCarrier {
 public:
  explicit PlainCarrier(const DeviceRoute& route) : route_(route) {}

  void start(std::size_t, const BucketPlan::Bucket& bucket, std::byte* data, bool average) override {
    const ReduceOp op = average ? ReduceOp::avg : ReduceOp::sum;
    route_.communicator.all_reduce(data, data, bucket.count, bucket.type, op, route_.stream);
    count_bytes(bucket.count * size_of(bucket.type));
  }

 protected:
  const DeviceRoute route_;
};

class HalfCarrier final : public PlainCarrier {
 public:
  HalfCarrier(const DeviceRoute& route, const BucketPlan& plan, DataType type)
      : PlainCarrier(route), type_(type) {
    std::vector<std::size_t> bytes;
    for (const BucketPlan::Bucket& bucket : plan.buckets) {
      bytes.push_back(bucket.type == DataType::f32 ? bucket.count * size_of(type) : 0);
    }
    encoded_ = DeviceBlock(route.backend, route.communicator, bytes, route.stream);
  }

  /// Divided before it is rounded, so that the sum overflows no earlier than the gradients.
  void start(std::size_t index, const BucketPlan::Bucket& bucket, std::byte* data, bool average) override {
    std::byte* const encoded = encoded_.part(index);
    if (encoded == nullptr) return PlainCarrier::start(index, bucket, data, average);
    const std::size_t count = bucket.count;
    route_.backend
        .convert({DataType::f32, type_, data, encoded, count, route_.weight(average)}, route_.stream)
        .throw_if_error();
    route_.communicator.all_reduce(encoded, encoded, count, type_, ReduceOp::sum, route_.stream);
    count_bytes(count * size_of(type_));
    route_.backend.convert({type_, DataType::f32, encoded, data, count, 1}, route_.stream).throw_if_error();
  }

 private:
  const DataType type_;
  DeviceBlock encoded_;
};

}  // namespace

std::unique_ptr<DeviceCarrier> make_plain_device_carrier(const DeviceRoute& route) {
  return std::make_unique<PlainCarrier>(route);
}

std::unique_ptr<DeviceCarrier> make_half_device_carrier(const DeviceRoute& route, const BucketPlan& plan,
                                                        DataType type) {
  return std::make_unique<HalfCarrier>(route, plan, type);
}

}  // namespace lockstep::internal
