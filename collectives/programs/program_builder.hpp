// Short ways to write a program down. Each step returns its ticket: the After that another lane names to wait
// for it.
//
//   ProgramBuilder builder;
//   LaneBuilder sends = builder.lane(), receives = builder.lane();
//   const After arrived = receives.recv(left, output(block));
//   sends.send(right, output(block), {arrived});
//   return std::move(builder).build();
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "collectives/programs/program.hpp"

namespace lockstep::internal {

inline Slice input(Range range) { return {Space::input, kSelf, range.begin, range.count}; }
inline Slice output(Range range) { return {Space::output, kSelf, range.begin, range.count}; }
inline Slice scratch(Range range) { return {Space::scratch, kSelf, range.begin, range.count}; }

/// What a reducing step does beyond combining: see Step.
struct RecvReduceFlags {
  bool received_first = false;
  bool finish = false;
};

/// Messages of zero elements: not sent where both sides know the count as a shared fact; sent where the two
/// sides learn it from their own callers (gather_v, ...), so that a difference between them is found.
enum class EmptyMessages : std::uint8_t { dropped, sent };

class LaneBuilder;

class ProgramBuilder {
 public:
  explicit ProgramBuilder(EmptyMessages empty = EmptyMessages::dropped) : empty_(empty) {}
  LaneBuilder lane();
  /// `count` further elements of scratch.
  Range reserve(std::uint64_t count);
  Program build() && { return std::move(program_); }

 private:
  friend class LaneBuilder;
  Program program_;
  EmptyMessages empty_;
  /// By lane and other lane: how many steps of the other one the lane has waited for.
  std::vector<std::vector<std::uint32_t>> waited_;
};

/// Appends to one lane. Copyable; valid while its builder lives. A step that moves no element is left out and
/// returns an empty ticket. `after`: up to two tickets of other lanes. Empty ones are ignored, and so are
/// those that an earlier step of this lane has waited for.
class LaneBuilder {
 public:
  using Tickets = std::initializer_list<After>;

  After send(int peer, Slice source, Tickets after = {});
  After recv(int peer, Slice destination, Tickets after = {});
  /// destination = own op received, in the order that `how` says.
  After recv_reduce(int peer, Slice own, Slice destination, RecvReduceFlags how, Tickets after = {});
  After copy(Slice source, Slice destination, Tickets after = {});
  /// Each destination = operands combined from left to right.
  After reduce(std::span<const Slice> operands, std::span<const Slice> destinations, bool finish,
               Tickets after = {});
  /// A single rank's "reduction": copies, and finishes where that is asked for.
  After copy_finished(Slice source, Slice destination);
  /// Messages without content.
  After signal(int peer, Tickets after = {});
  After expect(int peer, Tickets after = {});

  /// Raises this rank's phase by one.
  void publish();
  /// Waits until every member published as many phases as this rank.
  void await_all() { await(kSelf, builder_->program_.phases); }
  /// Waits until `member` (kSelf: all) published `phase` phases.
  void await(int member, std::uint32_t phase);

 private:
  friend class ProgramBuilder;
  LaneBuilder(ProgramBuilder& builder, std::uint32_t lane) : builder_(&builder), lane_(lane) {}
  After append(Step step, Tickets after);
  bool drops(std::uint64_t count) const { return count == 0 && builder_->empty_ == EmptyMessages::dropped; }

  ProgramBuilder* builder_;
  std::uint32_t lane_;
};

/// For algorithms in which what a rank has doubles in each round: when it has at least so much.
class DoublingTickets {
 public:
  explicit DoublingTickets(After own = {}) : rounds_{own} {}
  /// A further round arrives with `ticket`: 1 becomes 2, 4, ...
  void doubled(After ticket) { rounds_.push_back(ticket); }
  After when(int amount) const {
    std::size_t round = 0;
    while ((1 << round) < amount) ++round;
    return rounds_[round];
  }

 private:
  std::vector<After> rounds_;
};

}  // namespace lockstep::internal
