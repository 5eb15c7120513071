// The plain way: one all_reduce per bucket, in place. The marking thread starts it, the library's thread
// steps it while backward runs, wait() drives the rest.
#include "ddp/bucket_carrier.hpp"
#include "ddp/bucket_work.hpp"
#include "ddp/started_works.hpp"

namespace lockstep::internal {
namespace {

class DirectCarrier final : public BucketCarrier {
 public:
  DirectCarrier(Communicator& communicator, StepClock& clock) : communicator_(communicator), clock_(clock) {}

  void attach(const BucketPlan& plan, std::span<const Parameter>) override {
    works_.reserve(plan.buckets.size());
  }

  bool overwrites() const override { return communicator_.size() > 1; }

  void start(const GradientBucket& bucket) noexcept override {
    works_.start([&] { return start_all_reduce(communicator_, clock_, bucket); });
  }

  std::optional<Error> finish() override { return works_.finish(); }

 private:
  Communicator& communicator_;
  StepClock& clock_;
  StartedWorks works_;
};

}  // namespace

std::unique_ptr<BucketCarrier> make_direct_carrier(Communicator& communicator, StepClock& clock) {
  return std::make_unique<DirectCarrier>(communicator, clock);
}

}  // namespace lockstep::internal
