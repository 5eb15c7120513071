#include "ddp/sharded/gradient_store.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "ddp/started_works.hpp"

namespace lockstep::internal {
namespace {

/// Bytes of all buckets' parts, each `elements(b)` long.
template <typename Elements>
RegisteredBlock make_block(const ShardLayout& layout, Elements elements) {
  std::vector<std::size_t> bytes;
  for (std::size_t b = 0; b < layout.buckets(); ++b) bytes.push_back(elements(b) * sizeof(float));
  return RegisteredBlock(bytes);
}

class WholeStore final : public GradientStore {
 public:
  WholeStore(Communicator& communicator, const ShardLayout& layout)
      : communicator_(communicator),
        layout_(layout),
        memory_(make_block(layout, [&](std::size_t b) { return layout.padded(b); })) {}

  float* bucket(std::size_t b) override { return reinterpret_cast<float*>(memory_.part(b)); }
  float* shard(std::size_t b) const override {
    return reinterpret_cast<float*>(memory_.part(b)) +
           static_cast<std::size_t>(communicator_.rank()) * layout_.shard(b);
  }

  void start(std::size_t b, ReduceOp op) override {
    works_.start([&] {
      return communicator_.reduce_scatter_async(bucket(b), shard(b), layout_.shard(b), DataType::f32, op);
    });
  }

  std::optional<Error> await_all() override { return works_.finish(); }

  std::size_t lasting_bytes() const noexcept override { return memory_.bytes(); }
  std::size_t in_flight_bytes() const noexcept override { return 0; }

 private:
  Communicator& communicator_;
  const ShardLayout& layout_;
  RegisteredBlock memory_;
  StartedWorks works_;
};

/// As many reductions run at once before a bucket waits for the oldest: one on the wire, one behind it, so
/// that the wire never idles.
constexpr std::size_t kMostInFlight = 2;

class LendingStore final : public GradientStore {
 public:
  LendingStore(Communicator& communicator, const ShardLayout& layout)
      : communicator_(communicator),
        layout_(layout),
        shards_(make_block(layout, [&](std::size_t b) { return layout.shard(b); })),
        lent_(layout.buckets()) {
    for (std::size_t b = 0; b < layout.buckets(); ++b)
      loan_bytes_ = std::max(loan_bytes_, layout.padded(b) * sizeof(float));
  }

  float* bucket(std::size_t b) override;
  float* shard(std::size_t b) const override { return reinterpret_cast<float*>(shards_.part(b)); }
  void start(std::size_t b, ReduceOp op) override;
  std::optional<Error> await_all() override;

  std::size_t lasting_bytes() const noexcept override { return shards_.bytes(); }
  std::size_t in_flight_bytes() const noexcept override { return loans_ * loan_bytes_; }

 private:
  struct InFlight {
    std::size_t bucket;
    Work work;
  };
  void await_oldest();

  Communicator& communicator_;
  const ShardLayout& layout_;
  RegisteredBlock shards_;
  std::size_t loan_bytes_ = 0;  // All loans have the size of the largest bucket.
  std::size_t loans_ = 0;       // Made so far.
  std::vector<RegisteredBlock> free_;
  std::vector<std::optional<RegisteredBlock>> lent_;
  std::deque<InFlight> in_flight_;  // In the order in which they started, the same on all ranks.
  std::optional<Error> failure_;
};

/// Waiting for the oldest reduction cannot deadlock: all ranks start them in one order, and the oldest that
/// any rank waits for has been started by all whose turn it is.
float* LendingStore::bucket(std::size_t b) {
  if (failure_) return nullptr;
  if (!lent_[b]) {
    while (!in_flight_.empty() && in_flight_.front().work.test()) await_oldest();
    while (free_.empty() && in_flight_.size() >= kMostInFlight) await_oldest();
    if (failure_) return nullptr;
    if (free_.empty()) {
      free_.emplace_back(std::array{loan_bytes_});
      ++loans_;
    }
    lent_[b] = std::move(free_.back());
    free_.pop_back();
  }
  return reinterpret_cast<float*>(lent_[b]->part(0));
}

void LendingStore::start(std::size_t b, ReduceOp op) {
  if (failure_) return;
  try {
    in_flight_.push_back(
        {b, communicator_.reduce_scatter_async(bucket(b), shard(b), layout_.shard(b), DataType::f32, op)});
  } catch (const Error& error) {
    failure_ = error;
  }
}

void LendingStore::await_oldest() {
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

std::optional<Error> LendingStore::await_all() {
  while (!in_flight_.empty()) await_oldest();
  for (auto& loan : lent_) {
    if (!loan) continue;  // After a failure some were filled in vain.
    free_.push_back(std::move(*loan));
    loan.reset();
  }
  return std::exchange(failure_, std::nullopt);
}

}  // namespace

std::unique_ptr<GradientStore> make_whole_store(Communicator& communicator, const ShardLayout& layout) {
  return std::make_unique<WholeStore>(communicator, layout);
}

std::unique_ptr<GradientStore> make_lending_store(Communicator& communicator, const ShardLayout& layout) {
  return std::make_unique<LendingStore>(communicator, layout);
}

}  // namespace lockstep::internal
