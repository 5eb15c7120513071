#include "ddp/closing_exchange.hpp"

#include <algorithm>

#include "collectives/communicator_core.hpp"

namespace lockstep::internal {

ClosingExchange::ClosingExchange(Communicator& communicator, std::size_t parameters, bool urgent)
    : communicator_(communicator),
      number_(communicator.core().number_user()),
      parameters_(parameters),
      records_(static_cast<std::size_t>(communicator.size())),
      bits_((parameters + 7) / 8, 0xff) {
  options_.priority = urgent ? 1 : 0;
}

void ClosingExchange::resize(std::size_t parameters) {
  parameters_ = parameters;
  bits_.assign((parameters + 7) / 8, 0xff);
}

void ClosingExchange::exchange(const StepRecord& record, const std::vector<std::uint8_t>* has_gradient) {
  StepRecord mine = record;
  mine.reducer = number_;
  communicator_.all_gather(&mine, records_.data(), kRecordWords, DataType::u64, options_);
  require_one_reducer();
  if (has_gradient == nullptr) return;
  std::fill(bits_.begin(), bits_.end(), std::uint8_t{0});
  for (std::size_t i = 0; i < parameters_; ++i) {
    if ((*has_gradient)[i] != 0) bits_[i / 8] = static_cast<std::uint8_t>(bits_[i / 8] | 1u << i % 8);
  }
  communicator_.all_reduce(bits_.data(), bits_.data(), bits_.size(), DataType::u8, ReduceOp::bor, options_);
}

void ClosingExchange::require_one_reducer() const {
  const auto odd = std::find_if(records_.begin(), records_.end(), [&](const StepRecord& record) {
    return record.reducer != records_.front().reducer;
  });
  if (odd == records_.end()) return;
  const auto rank = static_cast<int>(odd - records_.begin());
  throw Error(ErrorCode::mismatch,
              "rank " + std::to_string(rank) +
                  " is in the step of another reducer than rank 0; take the steps of all that share a "
                  "communicator in one order on all ranks, or split() a communicator for each",
              rank);
}

std::vector<Nanos> ClosingExchange::computed() const {
  std::vector<Nanos> times;
  for (const StepRecord& record : records_) times.push_back(record.computed);
  return times;
}

std::vector<std::vector<std::size_t>> ClosingExchange::gather_sets(std::span<const std::size_t> mine) {
  const std::size_t words = (parameters_ + 63) / 64;
  std::vector<std::uint64_t> set(words);
  for (const std::size_t i : mine) set[i / 64] |= std::uint64_t{1} << i % 64;
  const std::vector<std::uint64_t> all = gather_words(set);
  std::vector<std::vector<std::size_t>> sets(records_.size());
  for (std::size_t r = 0; r < sets.size(); ++r) {
    for (std::size_t i = 0; i < parameters_; ++i) {
      if (all[r * words + i / 64] >> i % 64 & 1) sets[r].push_back(i);
    }
  }
  return sets;
}

std::vector<std::uint64_t> ClosingExchange::gather_words(std::span<const std::uint64_t> words) {
  std::vector<std::uint64_t> all(records_.size() * words.size());
  communicator_.all_gather(words.data(), all.data(), words.size(), DataType::u64);
  return all;
}

}  // namespace lockstep::internal
