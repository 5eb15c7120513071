// The plain way: one all_reduce per bucket, in place. The marking thread starts it, the library's thread
// steps it while backward runs, wait() drives the rest.
#include <utility>
#include <vector>

#include "ddp/bucket_carrier.hpp"

namespace lockstep::internal {
namespace {

class DirectCarrier final : public BucketCarrier {
 public:
  explicit DirectCarrier(Communicator& communicator) : communicator_(communicator) {}

  void attach(const BucketPlan& plan, std::span<const Parameter>) override {
    works_.reserve(plan.buckets.size());
  }

  void start(const GradientBucket& bucket) noexcept override {
    if (failure_) return;
    try {
      works_.push_back(
          communicator_.all_reduce_async(bucket.data, bucket.data, bucket.count, bucket.type, bucket.op()));
    } catch (const Error& error) {
      failure_ = error;
    }
  }

  std::optional<Error> finish() override {
    for (Work& work : works_) {
      try {
        work.wait();
      } catch (const Error& error) {
        if (!failure_) failure_ = error;
      }
    }
    works_.clear();
    return std::exchange(failure_, std::nullopt);
  }

 private:
  Communicator& communicator_;
  std::vector<Work> works_;
  std::optional<Error> failure_;
};

}  // namespace

std::unique_ptr<BucketCarrier> make_direct_carrier(Communicator& communicator) {
  return std::make_unique<DirectCarrier>(communicator);
}

}  // namespace lockstep::internal
