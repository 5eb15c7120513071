#include "ddp/closing_exchange.hpp"

#include <algorithm>
#include <array>
#include <string>

#include "collectives/communicator_core.hpp"
#include "ddp/first_to_differ.hpp"
#include "lib/base/hash.hpp"

namespace lockstep::internal {
namespace {

constexpr std::size_t kWordBits = 64;

/// By GatheringCall.
constexpr std::array kGatheringCalls{"begin_step", "freeze", "wait"};

std::string name_of_call(std::uint64_t word) { return kGatheringCalls[word % kGatheringCalls.size()]; }

/// The first word of each rank: its call, and of which reducer.
void require_one_call(std::span<const std::uint64_t> calls) {
  const int rank = first_to_differ(calls);
  if (rank < 0) return;
  const std::string first = name_of_call(calls.front());
  const std::string other = name_of_call(calls[static_cast<std::size_t>(rank)]);
  const std::string what =
      other == first ? "that of another reducer than rank 0" : other + " where rank 0 called " + first;
  throw Error(ErrorCode::mismatch,
              first + ": rank " + std::to_string(rank) + " called " + what +
                  "; call the same in one order on all ranks",
              rank);
}

std::size_t words_for(std::size_t bits) { return (bits + kWordBits - 1) / kWordBits; }

void set_bit(std::span<std::uint64_t> words, std::size_t i) {
  words[i / kWordBits] |= std::uint64_t{1} << i % kWordBits;
}

bool bit_of(std::span<const std::uint64_t> words, std::size_t i) {
  return (words[i / kWordBits] >> i % kWordBits & 1) != 0;
}

}  // namespace

ClosingExchange::ClosingExchange(Communicator& communicator, std::size_t parameters, bool urgent)
    : communicator_(communicator),
      number_(communicator.core().number_user()),
      parameters_(parameters),
      records_(static_cast<std::size_t>(communicator.size())),
      used_(words_for(parameters), ~std::uint64_t{0}) {
  options_.priority = urgent ? 1 : 0;
}

void ClosingExchange::resize(std::size_t parameters) {
  parameters_ = parameters;
  used_.assign(words_for(parameters), ~std::uint64_t{0});
}

void ClosingExchange::exchange(const StepRecord& record, const std::vector<std::uint8_t>* has_gradient) {
  StepRecord mine = record;
  mine.step = hash_combine(record.step, number_);
  communicator_.all_gather(&mine, records_.data(), kRecordWords, DataType::u64, options_);
  require_one_step();
  if (has_gradient == nullptr) return;
  std::fill(used_.begin(), used_.end(), std::uint64_t{0});
  for (std::size_t i = 0; i < parameters_; ++i) {
    if ((*has_gradient)[i] != 0) set_bit(used_, i);
  }
  communicator_.all_reduce(used_.data(), used_.data(), used_.size(), DataType::u64, ReduceOp::bor, options_);
}

void ClosingExchange::require_one_step() const {
  const auto odd = std::find_if(records_.begin(), records_.end(), [&](const StepRecord& record) {
    return record.step != records_.front().step;
  });
  if (odd == records_.end()) return;
  const auto rank = static_cast<int>(odd - records_.begin());
  throw Error(ErrorCode::mismatch,
              "rank " + std::to_string(rank) +
                  " is in another step than rank 0: of another reducer, of another number or with other "
                  "buckets; take the steps of all that share a communicator in one order on all ranks, or "
                  "split() a communicator for each",
              rank);
}

bool ClosingExchange::used(std::size_t i) const noexcept { return bit_of(used_, i); }

std::vector<Nanos> ClosingExchange::computed() const {
  std::vector<Nanos> times;
  for (const StepRecord& record : records_) times.push_back(record.computed);
  return times;
}

std::vector<std::vector<std::size_t>> ClosingExchange::gather_sets(std::span<const std::size_t> mine) {
  const std::size_t words = words_for(parameters_);
  std::vector<std::uint64_t> set(words);
  for (const std::size_t i : mine) set_bit(set, i);
  const std::vector<std::uint64_t> all = gather_words(GatheringCall::wait, set);
  std::vector<std::vector<std::size_t>> sets(records_.size());
  for (std::size_t r = 0; r < sets.size(); ++r) {
    for (std::size_t i = 0; i < parameters_; ++i) {
      if (bit_of(std::span(all).subspan(r * words, words), i)) sets[r].push_back(i);
    }
  }
  return sets;
}

std::vector<std::uint64_t> ClosingExchange::gather_words(GatheringCall call,
                                                         std::span<const std::uint64_t> words) {
  std::vector<std::uint64_t> mine{number_ * kGatheringCalls.size() + static_cast<std::uint64_t>(call)};
  mine.insert(mine.end(), words.begin(), words.end());
  std::vector<std::uint64_t> gathered(records_.size() * mine.size());
  try {
    communicator_.all_gather(mine.data(), gathered.data(), mine.size(), DataType::u64);
  } catch (const Error& error) {  // Of an all_gather the caller knows nothing.
    throw Error(error.code(), name_of_call(mine.front()) + ": " + error.what(), error.culprit());
  }
  std::vector<std::uint64_t> calls, all;
  for (auto from = gathered.begin(); from != gathered.end();
       from += static_cast<std::ptrdiff_t>(mine.size())) {
    calls.push_back(*from);
    all.insert(all.end(), from + 1, from + static_cast<std::ptrdiff_t>(mine.size()));
  }
  require_one_call(calls);
  return all;
}

}  // namespace lockstep::internal
