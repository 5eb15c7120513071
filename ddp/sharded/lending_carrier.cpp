// ZeRO-2 without a hook: one reduce_scatter per lent bucket. The thread that brings a bucket starts it, and
// waits for the oldest one when too many are on their way.
#include <deque>
#include <mutex>
#include <utility>

#include "ddp/bucket_gaps.hpp"
#include "ddp/bucket_work.hpp"
#include "ddp/sharded/loans.hpp"
#include "ddp/sharded/scatter_carriers.hpp"

namespace lockstep::internal {
namespace {

class LendingCarrier final : public ShardCarrier {
 public:
  LendingCarrier(Communicator& communicator, StepClock& clock, const ShardLayout& layout)
      : ShardCarrier(layout), communicator_(communicator), clock_(clock), layout_(layout), loans_(layout) {}

  void attach(const BucketPlan&, std::span<const Parameter>) override {}
  std::byte* lend(std::size_t bucket) override;
  void start(const GradientBucket& bucket) noexcept override;
  std::optional<Error> finish() override;
  std::size_t most_lent_bytes() const override { return loans_.bytes(); }

 private:
  struct InFlight {
    std::size_t bucket;
    Work work;
  };
  void make_room();
  void await_oldest();
  Work reduce(const GradientBucket& bucket) {
    clear_gaps(bucket.parts, static_cast<std::byte*>(bucket.data), bucket.count, size_of(bucket.type));
    return start_reduce_scatter(communicator_, clock_, bucket, shard(bucket.index),
                                layout_.shard(bucket.index));
  }

  Communicator& communicator_;
  StepClock& clock_;
  const ShardLayout& layout_;

  std::mutex mutex_;  // Guards all below.
  Loans loans_;
  std::deque<InFlight> in_flight_;  // In the order in which they started, the same on all ranks.
  std::optional<Error> failure_;
};

std::byte* LendingCarrier::lend(std::size_t bucket) {
  const std::lock_guard lock(mutex_);
  if (!loans_.lent(bucket) && !failure_) make_room();
  return failure_ ? nullptr : loans_.lend(bucket);
}

/// Waiting for the oldest reduction cannot deadlock: all ranks start them in one order, and the oldest that
/// any rank waits for has been started by all whose turn it is.
void LendingCarrier::make_room() {
  while (!in_flight_.empty() && in_flight_.front().work.test()) await_oldest();
  while (!loans_.any_free() && in_flight_.size() >= kMostInFlight) await_oldest();
}

void LendingCarrier::start(const GradientBucket& bucket) noexcept {
  const std::lock_guard lock(mutex_);
  if (failure_) return;
  try {
    in_flight_.push_back({bucket.index, reduce(bucket)});
  } catch (const Error& error) {
    failure_ = error;
  }
}

void LendingCarrier::await_oldest() {
  InFlight oldest = std::move(in_flight_.front());
  in_flight_.pop_front();
  try {
    oldest.work.wait();
  } catch (const Error& error) {
    if (!failure_) failure_ = error;
  }
  loans_.take_back(oldest.bucket);
}

std::optional<Error> LendingCarrier::finish() {
  const std::lock_guard lock(mutex_);
  while (!in_flight_.empty()) await_oldest();
  loans_.take_back_all();  // After a failure some were filled in vain.
  return std::exchange(failure_, std::nullopt);
}

}  // namespace

std::unique_ptr<ShardCarrier> make_lending_carrier(Communicator& communicator, StepClock& clock,
                                                   const ShardLayout& layout) {
  return std::make_unique<LendingCarrier>(communicator, clock, layout);
}

}  // namespace lockstep::internal
