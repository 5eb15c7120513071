#include "ddp/closing_exchange.hpp"

#include <algorithm>

namespace lockstep::internal {

ClosingExchange::ClosingExchange(Communicator& communicator, std::size_t parameters)
    : communicator_(communicator),
      parameters_(parameters),
      records_(static_cast<std::size_t>(communicator.size())),
      bits_((parameters + 7) / 8, 0xff) {}

void ClosingExchange::resize(std::size_t parameters) {
  parameters_ = parameters;
  bits_.assign((parameters + 7) / 8, 0xff);
}

void ClosingExchange::exchange(const StepRecord& record, const std::vector<std::uint8_t>* has_gradient) {
  communicator_.all_gather(&record, records_.data(), kRecordWords, DataType::u64);
  if (has_gradient == nullptr) return;
  std::fill(bits_.begin(), bits_.end(), std::uint8_t{0});
  for (std::size_t i = 0; i < parameters_; ++i) {
    if ((*has_gradient)[i] != 0) bits_[i / 8] = static_cast<std::uint8_t>(bits_[i / 8] | 1u << i % 8);
  }
  communicator_.all_reduce(bits_.data(), bits_.data(), bits_.size(), DataType::u8, ReduceOp::bor);
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
