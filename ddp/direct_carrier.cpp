// The plain way: one all_reduce per bucket, in place. The marking thread starts it, the library's thread
// steps it while backward runs, wait() drives the rest.
#include "collectives/call_builder.hpp"
#include "collectives/communicator_core.hpp"
#include "ddp/bucket_carrier.hpp"
#include "ddp/started_works.hpp"
#include "lib/net/fd.hpp"

namespace lockstep::internal {
namespace {

class DirectCarrier final : public BucketCarrier {
 public:
  DirectCarrier(Communicator& communicator, StepClock& clock) : communicator_(communicator), clock_(clock) {}

  void attach(const BucketPlan& plan, std::span<const Parameter>) override {
    works_.reserve(plan.buckets.size());
  }

  void start(const GradientBucket& bucket) noexcept override {
    works_.start([&] { return start_all_reduce(bucket); });
  }

  std::optional<Error> finish() override { return works_.finish(); }

 private:
  Work start_all_reduce(const GradientBucket& bucket) {
    if (in_forked_child())
      throw Error(ErrorCode::not_supported, "a child forked by the trainer has no connections");
    Engine& engine = communicator_.core().engine();
    CallOptions options;
    // Later buckets hold earlier layers, which the next forward needs first.
    options.priority = static_cast<int>(bucket.index);
    CallBuilder call(Collective::all_reduce, engine, options);
    call.elements(bucket.type, bucket.count).reduction(bucket.op()).buffers(bucket.data, bucket.data);
    const std::size_t index = bucket.index;
    return Work(engine.start(call.build(), [this, index](bool) { clock_.bucket_done(index); }));
  }

  Communicator& communicator_;
  StepClock& clock_;
  StartedWorks works_;
};

}  // namespace

std::unique_ptr<BucketCarrier> make_direct_carrier(Communicator& communicator, StepClock& clock) {
  return std::make_unique<DirectCarrier>(communicator, clock);
}

}  // namespace lockstep::internal
