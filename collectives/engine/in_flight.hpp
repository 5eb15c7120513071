// InFlight: the operations of an engine that have not ended, and whose turn it is.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "collectives/engine/limits.hpp"
#include "collectives/engine/operation.hpp"

namespace lockstep::internal {

/// Lists of operations, which it does not own. Not thread-safe (the engine's lock guards it).
class InFlight {
 public:
  using List = std::vector<Operation*>;

  InFlight();
  /// After it that many operations find a place in any list without memory.
  void reserve(std::size_t operations);

  // ---- collectives ----
  /// Running, by priority, then by sequence.
  const List& active() const { return active_; }
  /// Started beyond kMaxInFlight, by sequence.
  const List& pending() const { return pending_; }
  bool has_collectives() const { return !active_.empty() || !pending_.empty(); }
  /// Of active() those that are urgent, or are not.
  std::size_t running(bool urgent) const { return running_[urgent]; }
  bool has_room(bool urgent) const { return running_[urgent] < kMaxInFlight; }
  bool has_pending(bool urgent) const;

  void start(Operation& operation);
  void queue(Operation& operation) { pending_.push_back(&operation); }
  /// The first pending one that there is room for now; nullptr: none.
  Operation* take_pending();
  /// Nothing where it is not active. Whether it was in front of the domain: it makes way for those behind it.
  bool retire(Operation& operation);

  /// In a domain they run one after the other.
  void enter_domain(Operation& operation) { in_domain_.push_back(&operation); }
  bool is_front_of_domain(const Operation& operation) const {
    return !in_domain_.empty() && in_domain_.front() == &operation;
  }
  void leave_domain() { in_domain_.clear(); }

  /// The oldest active one of a kind, for which all others of it may wait; nullptr: none.
  Operation* oldest(bool urgent) const;
  /// Active or pending; nullptr: neither.
  const Operation* find(std::uint64_t sequence) const;

  // ---- point-to-point messages ----
  const List& messages() const { return messages_; }
  void add_message(Operation& operation) { messages_.push_back(&operation); }
  void remove_message(Operation& operation) { std::erase(messages_, &operation); }

 private:
  List active_, pending_, in_domain_, messages_;
  std::array<std::size_t, 2> running_{};
};

}  // namespace lockstep::internal
