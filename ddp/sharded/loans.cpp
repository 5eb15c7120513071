#include "ddp/sharded/loans.hpp"

#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <utility>

#include "collectives/communicator_core.hpp"

namespace lockstep::internal {

Loans::Loans(const ShardLayout& layout) : lent_(layout.buckets()) {
  free_.reserve(layout.buckets());  // What is lent can be taken back, whatever else fails.
  for (std::size_t b = 0; b < layout.buckets(); ++b)
    loan_bytes_ = std::max(loan_bytes_, layout.bucket_bytes(b));
}

Result<std::byte*> Loans::lend(std::size_t bucket) try {
  if (!lent_[bucket]) {
    if (free_.empty()) {
      free_.emplace_back(std::array{loan_bytes_});
      ++made_;
    }
    lent_[bucket] = std::move(free_.back());
    free_.pop_back();
  }
  return lent_[bucket]->part(0);
} catch (const Error& error) {
  return Status(error.code(), error.what());
} catch (const std::bad_alloc&) {
  return Status(ErrorCode::out_of_memory, "no memory");
}

void Loans::take_back(std::size_t bucket) {
  if (!lent_[bucket]) return;
  free_.push_back(std::move(*lent_[bucket]));
  lent_[bucket].reset();
}

void Loans::take_back_all() {
  for (std::size_t b = 0; b < lent_.size(); ++b) take_back(b);
}

Error end_for_lack_of_memory(Communicator& communicator, std::size_t bucket, const Status& why) {
  const int rank = communicator.rank();
  const std::string text = "rank " + std::to_string(rank) + " has no memory for a bucket, number " +
                           std::to_string(bucket) + ": " + why.message();
  communicator.core().engine().request_revoke(Status(why.code(), text, rank));
  return Error(why.code(), text, rank);
}

}  // namespace lockstep::internal
