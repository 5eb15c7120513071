#include "ddp/sharded/scatter_carriers.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <mutex>
#include <utility>

#include "ddp/bucket_gaps.hpp"
#include "ddp/bucket_work.hpp"
#include "ddp/registered_block.hpp"
#include "ddp/started_works.hpp"

namespace lockstep::internal {
namespace {

class ScatterCarrier final : public BucketCarrier {
 public:
  ScatterCarrier(Communicator& communicator, StepClock& clock, const ShardLayout& layout)
      : communicator_(communicator), clock_(clock), layout_(layout) {}

  void attach(const BucketPlan& plan, std::span<const Parameter>) override {
    works_.reserve(plan.buckets.size());
  }

  void start(const GradientBucket& bucket) noexcept override {
    works_.start([&] {
      auto* shard = static_cast<std::byte*>(bucket.data) + layout_.shard_offset(bucket.index);
      return start_reduce_scatter(communicator_, clock_, bucket, shard, layout_.shard(bucket.index));
    });
  }

  std::optional<Error> finish() override { return works_.finish(); }

 private:
  Communicator& communicator_;
  StepClock& clock_;
  const ShardLayout& layout_;
  StartedWorks works_;
};

/// As many reductions run at once before a bucket waits for the oldest: one on the wire, one behind it, so
/// that the wire never idles.
constexpr std::size_t kMostInFlight = 2;

/// Memory of all shards.
RegisteredBlock shards_of(const ShardLayout& layout) {
  std::vector<std::size_t> bytes;
  for (std::size_t b = 0; b < layout.buckets(); ++b) bytes.push_back(layout.shard_bytes(b));
  return RegisteredBlock(bytes);
}

class Lending final : public LendingCarrier {
 public:
  Lending(Communicator& communicator, StepClock& clock, const ShardLayout& layout)
      : communicator_(communicator),
        clock_(clock),
        layout_(layout),
        shards_(shards_of(layout)),
        lent_(layout.buckets()) {
    for (std::size_t b = 0; b < layout.buckets(); ++b)
      loan_bytes_ = std::max(loan_bytes_, layout.bucket_bytes(b));
  }

  void attach(const BucketPlan&, std::span<const Parameter>) override {}
  std::byte* lend(std::size_t bucket) override;
  void start(const GradientBucket& bucket) noexcept override;
  std::optional<Error> finish() override;

  std::byte* shard(std::size_t bucket) const override { return shards_.part(bucket); }
  std::size_t shard_bytes() const override { return shards_.bytes(); }
  std::size_t most_lent_bytes() const override { return loans_ * loan_bytes_; }

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
  RegisteredBlock shards_;
  std::size_t loan_bytes_ = 0;  // All loans have the size of the largest bucket.

  std::mutex mutex_;       // Guards all below.
  std::size_t loans_ = 0;  // Made so far.
  std::vector<RegisteredBlock> free_;
  std::vector<std::optional<RegisteredBlock>> lent_;
  std::deque<InFlight> in_flight_;  // In the order in which they started, the same on all ranks.
  std::optional<Error> failure_;
};

std::byte* Lending::lend(std::size_t bucket) {
  const std::lock_guard lock(mutex_);
  if (!lent_[bucket] && !failure_) {
    make_room();
    lent_[bucket] = std::move(free_.back());
    free_.pop_back();
  }
  return failure_ ? nullptr : lent_[bucket]->part(0);
}

/// Waiting for the oldest reduction cannot deadlock: all ranks start them in one order, and the oldest that
/// any rank waits for has been started by all whose turn it is.
void Lending::make_room() {
  while (!in_flight_.empty() && in_flight_.front().work.test()) await_oldest();
  while (free_.empty() && in_flight_.size() >= kMostInFlight) await_oldest();
  if (!free_.empty()) return;
  free_.emplace_back(std::array{loan_bytes_});
  ++loans_;
}

void Lending::start(const GradientBucket& bucket) noexcept {
  const std::lock_guard lock(mutex_);
  if (failure_) return;
  try {
    in_flight_.push_back({bucket.index, reduce(bucket)});
  } catch (const Error& error) {
    failure_ = error;
  }
}

void Lending::await_oldest() {
  InFlight oldest = std::move(in_flight_.front());
  in_flight_.pop_front();
  try {
    oldest.work.wait();
  } catch (const Error& error) {
    if (!failure_) failure_ = error;
  }
  free_.push_back(std::move(*lent_[oldest.bucket]));
  lent_[oldest.bucket].reset();
}

std::optional<Error> Lending::finish() {
  const std::lock_guard lock(mutex_);
  while (!in_flight_.empty()) await_oldest();
  for (auto& loan : lent_) {
    if (!loan) continue;  // After a failure some were filled in vain.
    free_.push_back(std::move(*loan));
    loan.reset();
  }
  return std::exchange(failure_, std::nullopt);
}

}  // namespace

std::unique_ptr<BucketCarrier> make_scatter_carrier(Communicator& communicator, StepClock& clock,
                                                    const ShardLayout& layout) {
  return std::make_unique<ScatterCarrier>(communicator, clock, layout);
}

std::unique_ptr<LendingCarrier> make_lending_carrier(Communicator& communicator, StepClock& clock,
                                                     const ShardLayout& layout) {
  return std::make_unique<Lending>(communicator, clock, layout);
}

}  // namespace lockstep::internal
