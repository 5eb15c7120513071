// The plain way: one all_reduce per bucket, in place. The marking thread starts it, the library's thread
// steps it while backward runs, wait() drives the rest.
#include "ddp/bucket_carrier.hpp"
#include "ddp/bucket_plan.hpp"
#include "ddp/bucket_work.hpp"
#include "ddp/started_works.hpp"

namespace lockstep::internal {
namespace {

class DirectCarrier final : public BucketCarrier {
 public:
  DirectCarrier(Communicator& communicator, StepClock& clock, bool last_first)
      : communicator_(communicator), clock_(clock), last_first_(last_first), works_(communicator) {}

  void attach(const BucketPlan& plan, std::span<const Parameter>) override {
    works_.reserve(plan.buckets.size());
    first_urgent_ = last_first_ ? first_urgent(plan) : plan.buckets.size();
  }

  bool overwrites() const override { return communicator_.size() > 1; }

  void start(const GradientBucket& bucket) noexcept override {
    const bool urgent = bucket.index >= first_urgent_;
    works_.start([&] { return start_all_reduce(communicator_, clock_, bucket, urgent); });
  }

  void await(std::size_t bucket) override { works_.await(bucket); }

  bool failed() const override { return works_.failed(); }

  std::optional<Error> finish() override { return works_.finish(); }

 private:
  Communicator& communicator_;
  StepClock& clock_;
  const bool last_first_;
  std::size_t first_urgent_ = 0;
  StartedWorks works_;
};

}  // namespace

std::unique_ptr<BucketCarrier> make_direct_carrier(Communicator& communicator, StepClock& clock,
                                                   bool last_first) {
  return std::make_unique<DirectCarrier>(communicator, clock, last_first);
}

}  // namespace lockstep::internal
