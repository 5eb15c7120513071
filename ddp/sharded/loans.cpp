#include "ddp/sharded/loans.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep::internal {

Loans::Loans(const ShardLayout& layout) : lent_(layout.buckets()) {
  for (std::size_t b = 0; b < layout.buckets(); ++b)
    loan_bytes_ = std::max(loan_bytes_, layout.bucket_bytes(b));
}

std::byte* Loans::lend(std::size_t bucket) {
  if (!lent_[bucket]) {
    if (free_.empty()) {
      free_.emplace_back(std::array{loan_bytes_});
      ++made_;
    }
    lent_[bucket] = std::move(free_.back());
    free_.pop_back();
  }
  return lent_[bucket]->part(0);
}

void Loans::take_back(std::size_t bucket) {
  if (!lent_[bucket]) return;
  free_.push_back(std::move(*lent_[bucket]));
  lent_[bucket].reset();
}

void Loans::take_back_all() {
  for (std::size_t b = 0; b < lent_.size(); ++b) take_back(b);
}

}  // namespace lockstep::internal
