// ZeRO-2 with a hook: the hook's thread runs it over lent buckets, keeps this rank's shard of each sum and
// gives the memory back.
#include <condition_variable>
#include <mutex>
#include <utility>

#include "ddp/sharded/loans.hpp"
#include "ddp/sharded/scatter_carriers.hpp"
#include "lib/reduce/copy.hpp"

namespace lockstep::internal {
namespace {

class LendingHookCarrier final : public ShardCarrier {
 public:
  LendingHookCarrier(Communicator& communicator, StepClock& clock, const ShardLayout& layout,
                     std::shared_ptr<CommunicationHook> hook)
      : ShardCarrier(layout),
        communicator_(communicator),
        layout_(layout),
        loans_(layout),
        hooked_(make_hook_carrier(communicator, clock, std::move(hook),
                                  [this](const GradientBucket& bucket) { take_shard(bucket); })) {}

  void attach(const BucketPlan& plan, std::span<const Parameter> parameters) override {
    hooked_->attach(plan, parameters);
  }
  std::byte* lend(std::size_t bucket) override;
  void start(const GradientBucket& bucket) noexcept override;
  std::optional<Error> finish() override;
  std::optional<Error> end_step(bool good) override { return hooked_->end_step(good); }
  std::optional<WrongResult> wrong_result() const override { return hooked_->wrong_result(); }
  std::size_t most_lent_bytes() const override { return loans_.bytes(); }

 private:
  void take_shard(const GradientBucket& bucket);

  Communicator& communicator_;
  const ShardLayout& layout_;
  std::mutex mutex_;  // Guards the next four.
  std::condition_variable returned_;
  Loans loans_;
  std::size_t in_flight_ = 0;
  std::optional<Error> failure_;           // Of lend(), in this step.
  std::unique_ptr<BucketCarrier> hooked_;  // Last: its thread uses the members above.
};

/// Waiting cannot deadlock: the hook's thread works without this one's help on buckets that every rank starts
/// in one order, and a bucket that failed is given back as well.
std::byte* LendingHookCarrier::lend(std::size_t bucket) {
  std::unique_lock lock(mutex_);
  if (!loans_.lent(bucket)) {
    returned_.wait(lock, [this] { return loans_.any_free() || in_flight_ < kMostInFlight; });
  }
  if (failure_) return nullptr;
  const auto lent = loans_.lend(bucket);
  if (lent.ok()) return lent.value();
  failure_ = end_for_lack_of_memory(communicator_, bucket, lent.status());
  return nullptr;
}

void LendingHookCarrier::start(const GradientBucket& bucket) noexcept {
  if (bucket.data == nullptr) return;  // lend() has failed, and with it the step.
  {
    const std::lock_guard lock(mutex_);
    ++in_flight_;
  }
  hooked_->start(bucket);
}

void LendingHookCarrier::take_shard(const GradientBucket& bucket) {
  const std::size_t b = bucket.index;
  copy_bytes(shard(b), static_cast<std::byte*>(bucket.data) + layout_.shard_offset(b),
             layout_.shard_bytes(b));
  {
    const std::lock_guard lock(mutex_);
    loans_.take_back(b);
    --in_flight_;
  }
  returned_.notify_all();
}

std::optional<Error> LendingHookCarrier::finish() {
  auto failed = hooked_->finish();
  const std::lock_guard lock(mutex_);
  loans_.take_back_all();  // Some may have been filled in a step that was given up.
  return failure_ ? std::exchange(failure_, std::nullopt) : failed;
}

}  // namespace

std::unique_ptr<ShardCarrier> make_lending_hook_carrier(Communicator& communicator, StepClock& clock,
                                                        const ShardLayout& layout,
                                                        std::shared_ptr<CommunicationHook> hook) {
  return std::make_unique<LendingHookCarrier>(communicator, clock, layout, std::move(hook));
}

}  // namespace lockstep::internal
