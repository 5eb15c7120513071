// ZeRO-2 without a hook: one reduce_scatter per lent bucket. The thread that brings a bucket starts it, and
// waits for the oldest one when too many are on their way.
#include <mutex>

#include "ddp/bucket_work.hpp"
#include "ddp/sharded/loans.hpp"
#include "ddp/sharded/scatter_carriers.hpp"
#include "ddp/started_works.hpp"

namespace lockstep::internal {
namespace {

class LendingCarrier final : public ShardCarrier {
 public:
  LendingCarrier(Communicator& communicator, StepClock& clock, const ShardLayout& layout)
      : ShardCarrier(layout),
        communicator_(communicator),
        clock_(clock),
        layout_(layout),
        loans_(layout),
        works_(communicator) {}

  void attach(const BucketPlan&, std::span<const Parameter>) override {}
  std::byte* lend(std::size_t bucket) override;
  void start(const GradientBucket& bucket) noexcept override;
  std::optional<Error> finish() override;
  std::size_t most_lent_bytes() const override { return loans_.bytes(); }

 private:
  void make_room();
  void give_back_oldest() { loans_.take_back(works_.await_first()); }  // Buckets start from 0 in each step.
  Work reduce(const GradientBucket& bucket) {
    return start_reduce_scatter(communicator_, clock_, bucket, shard(bucket.index),
                                layout_.shard(bucket.index));
  }

  Communicator& communicator_;
  StepClock& clock_;
  const ShardLayout& layout_;

  std::mutex mutex_;  // Guards all below.
  Loans loans_;
  StartedWorks works_;  // In one order on all ranks.
};

std::byte* LendingCarrier::lend(std::size_t bucket) {
  const std::lock_guard lock(mutex_);
  if (!loans_.lent(bucket) && !works_.failed()) make_room();
  if (works_.failed()) return nullptr;
  const auto lent = loans_.lend(bucket);
  if (lent.ok()) return lent.value();
  works_.fail(end_for_lack_of_memory(communicator_, bucket, lent.status()));
  return nullptr;
}

/// Waiting for the oldest reduction cannot deadlock: all ranks start them in one order, and the oldest that
/// any rank waits for has been started by all whose turn it is.
void LendingCarrier::make_room() {
  while (works_.first_done()) give_back_oldest();
  while (!loans_.any_free() && works_.in_flight() >= kMostInFlight) give_back_oldest();
}

void LendingCarrier::start(const GradientBucket& bucket) noexcept {
  const std::lock_guard lock(mutex_);
  works_.start([&] { return reduce(bucket); });
}

std::optional<Error> LendingCarrier::finish() {
  const std::lock_guard lock(mutex_);
  auto failed = works_.finish();
  loans_.take_back_all();  // After a failure some were filled in vain.
  return failed;
}

}  // namespace

std::unique_ptr<ShardCarrier> make_lending_carrier(Communicator& communicator, StepClock& clock,
                                                   const ShardLayout& layout) {
  return std::make_unique<LendingCarrier>(communicator, clock, layout);
}

}  // namespace lockstep::internal
