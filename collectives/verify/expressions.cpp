#include "collectives/verify/expressions.hpp"

#include <bit>

#include "lib/base/hash.hpp"

namespace lockstep::internal {

std::size_t Expressions::KeyHash::operator()(const std::vector<std::uint32_t>& key) const noexcept {
  std::uint64_t hash = kFnvOffset;  // FNV-1a, a word at a time.
  for (const std::uint32_t word : key) hash = (hash ^ word) * kFnvPrime;
  return hash ^ (hash >> 29);
}

Expressions::Expressions(int world) : world_(world), words_((static_cast<std::size_t>(world) + 63) / 64) {
  add({});  // kUnwritten
}

Expression Expressions::add(Node node) {
  nodes_.push_back(node);
  sets_.resize(sets_.size() + words_);
  return static_cast<Expression>(nodes_.size() - 1);
}

std::span<const std::uint64_t> Expressions::ranks(Expression expression) const {
  return {sets_.data() + expression * words_, words_};
}

Expression Expressions::leaf(int rank, int call) {
  const auto index =
      static_cast<std::size_t>(call) * static_cast<std::size_t>(world_) + static_cast<std::size_t>(rank);
  if (leaves_.size() <= index) leaves_.resize(index + 1, kUnwritten);
  if (leaves_[index] == kUnwritten) {
    leaves_[index] = add({call, rank, false});
    sets_[leaves_[index] * words_ + static_cast<std::size_t>(rank) / 64] |= std::uint64_t{1} << (rank % 64);
  }
  return leaves_[index];
}

std::string Expressions::check(std::span<const Expression> operands) const {
  std::vector<std::uint64_t> seen(words_);
  for (const Expression operand : operands) {
    if (operand == kUnwritten) return "reduces an element that nobody wrote";
    if (finished(operand)) return "reduces the finished " + describe(operand);
    if (call(operand) != call(operands[0])) return "mixes " + describe(operand) + " with another call";
    const auto set = ranks(operand);
    for (std::size_t word = 0; word < words_; ++word) {
      if ((seen[word] & set[word]) != 0) return "counts a rank twice with the " + describe(operand);
      seen[word] |= set[word];
    }
  }
  return {};
}

Expression Expressions::combine(std::span<const Expression> operands, bool finish, std::string& error) {
  if (operands.size() == 1 && !finish && operands[0] != kUnwritten) return operands[0];
  key_.assign(operands.begin(), operands.end());
  key_.push_back(finish ? 1 : 0);
  if (const auto found = known_.find(key_); found != known_.end()) return found->second;
  error = check(operands);
  if (!error.empty()) return kUnwritten;
  const Expression node = add({call(operands[0]), -1, finish});
  for (const Expression operand : operands) {
    for (std::size_t word = 0; word < words_; ++word) {
      sets_[node * words_ + word] |= sets_[operand * words_ + word];
    }
  }
  if (finish && !complete(node)) {
    error = "finishes an incomplete " + describe(node);
    return kUnwritten;
  }
  known_.emplace(key_, node);
  return node;
}

bool Expressions::complete(Expression expression) const {
  int contributing = 0;
  for (const std::uint64_t word : ranks(expression)) contributing += std::popcount(word);
  return contributing == world_;
}

std::string Expressions::describe(Expression expression) const {
  if (expression == kUnwritten) return "unwritten element";
  const Node& node = nodes_[expression];
  const std::string when = node.call == 0 ? "" : " in call " + std::to_string(node.call);
  if (node.leaf_rank >= 0) return "input of rank " + std::to_string(node.leaf_rank) + when;
  std::string text;
  const auto set = ranks(expression);
  const auto has = [&](int rank) {
    return ((set[static_cast<std::size_t>(rank) / 64] >> (rank % 64)) & 1) != 0;
  };
  for (int rank = 0; rank < world_; ++rank) {
    if (!has(rank)) continue;
    text += (text.empty() ? "" : ",") + std::to_string(rank);
    const int first = rank;
    while (rank + 1 < world_ && has(rank + 1)) ++rank;
    if (rank > first) text += "-" + std::to_string(rank);
  }
  return "sum of ranks " + text + when + (node.finished ? " (finished)" : "");
}

}  // namespace lockstep::internal
