// Expressions: what an element of memory holds, as a tree over the ranks' inputs. Equal trees have equal
// numbers (hash-consing), so that "the same expression on every rank" is a comparison of two integers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep::internal {

using Expression = std::uint32_t;
inline constexpr Expression kUnwritten = 0;

/// The trees of one proof. A leaf is "the input of rank r in call c"; an inner node combines its children
/// from left to right in one step (rounding once), and may be finished (avg has divided).
class Expressions {
 public:
  explicit Expressions(int world);

  Expression leaf(int rank, int call);
  /// A node of at least one operand. One operand without finish is the operand itself. Returns kUnwritten and
  /// sets `error` when an operand is unwritten or finished already, when calls mix, when a rank would be
  /// counted twice, or when a sum is finished that lacks a rank.
  Expression combine(std::span<const Expression> operands, bool finish, std::string& error);

  /// The rank whose input it is, or -1.
  int leaf_rank(Expression expression) const { return nodes_[expression].leaf_rank; }
  int call(Expression expression) const { return nodes_[expression].call; }
  bool finished(Expression expression) const { return nodes_[expression].finished; }
  bool complete(Expression expression) const;
  /// "input of rank 3", "sum of ranks 0-2,5 (finished)", with the call when there are several.
  std::string describe(Expression expression) const;

 private:
  struct Node {
    int call = 0;
    int leaf_rank = -1;
    bool finished = false;
  };
  struct KeyHash {
    std::size_t operator()(const std::vector<std::uint32_t>& key) const noexcept;
  };
  std::span<const std::uint64_t> ranks(Expression expression) const;
  Expression add(Node node);
  std::string check(std::span<const Expression> operands) const;

  int world_;
  std::size_t words_;  ///< 64-bit words of a set of ranks.
  std::vector<Node> nodes_;
  std::vector<std::uint64_t> sets_;  ///< Ranks that contribute to each node, words_ each.
  std::vector<Expression> leaves_;   ///< By call * world + rank.
  std::unordered_map<std::vector<std::uint32_t>, Expression, KeyHash> known_;
  std::vector<std::uint32_t> key_;  ///< Reused: operands, then finish.
};

}  // namespace lockstep::internal
