// Mistakes that are none. Every argument here is made from the original programs, not by the verifier, so
// that the two check each other.
#include <algorithm>

#include "collectives/verify/results.hpp"
#include "tests/programs/mutants.hpp"
#include "tests/programs/passed_on.hpp"
#include "tests/programs/uses.hpp"

namespace lockstep::internal {
namespace {

bool is_local(const Step& step) { return step.kind == StepKind::copy || step.kind == StepKind::reduce; }

/// Whether two slices, named by `rank` and `other_rank`, can share an element: in place, input and output are
/// one memory.
bool may_meet(const ProgramSet& set, int rank, Slice slice, int other_rank, Slice other) {
  const auto settle = [&](int namer, Slice& named) {
    if (named.member == kSelf) named.member = namer;
    const InPlace layout = in_place_layout(set.shapes[static_cast<std::size_t>(named.member)]);
    if (!layout.exists || (named.space != Space::input && named.space != Space::output)) return;
    named.offset += named.space == Space::input ? layout.input_begin : layout.output_begin;
    named.space = Space::input;
  };
  settle(rank, slice);
  settle(other_rank, other);
  return slice.space == other.space && slice.member == other.member &&
         slice.offset < other.offset + other.count && other.offset < slice.offset + slice.count;
}
bool any_meet(const ProgramSet& set, int rank, const std::vector<Slice>& slices, int other_rank,
              const std::vector<Slice>& others) {
  return std::any_of(slices.begin(), slices.end(), [&](const Slice& slice) {
    return std::any_of(others.begin(), others.end(),
                       [&](const Slice& other) { return may_meet(set, rank, slice, other_rank, other); });
  });
}

/// But for `but`.
bool touches_members(const std::vector<Slice>& slices, int but = kSelf) {
  return std::any_of(slices.begin(), slices.end(),
                     [&](const Slice& slice) { return slice.member != kSelf && slice.member != but; });
}

class Argument {
 public:
  Argument(const ProgramSet& set, const Mutant& mutant)
      : set_(set),
        mutant_(mutant),
        program_(set.programs[static_cast<std::size_t>(mutant.rank)]),
        steps_(program_.lanes[mutant.lane].steps),
        step_(steps_[mutant.step]) {}

  std::string find() const {
    switch (mutant_.mistake) {
      case Mistake::duplicate:
        return duplicate();
      case Mistake::swap:
        return swap(step_, steps_[mutant_.step + 1]);
      case Mistake::flip_operands:
        return flip_operands();
      case Mistake::drop: {
        const std::string enough = awaits_enough(kSelf, 0);
        return enough.empty() ? awaits_later(kSelf) : enough;
      }
      case Mistake::wrong_peer: {
        const std::string enough = awaits_enough(mutant_.peer, step_.phase);
        return enough.empty() ? awaits_later(mutant_.peer) : enough;
      }
      case Mistake::wrong_source:
        return read_of_another();
      default:
        return {};
    }
  }

 private:
  /// An await that is missing, or that waits for `member` alone, matters only for what no earlier await has
  /// waited for.
  std::string awaits_enough(int member, std::uint32_t phase) const {
    if (step_.kind != StepKind::await) return {};
    for (int needed = 0; needed < static_cast<int>(set_.programs.size()); ++needed) {
      const bool asked = needed != mutant_.rank && (step_.peer == kSelf || step_.peer == needed);
      bool awaited = needed == member && phase >= step_.phase;
      for (std::size_t i = 0; i < mutant_.step; ++i) {
        const bool covers =
            steps_[i].kind == StepKind::await && (steps_[i].peer == kSelf || steps_[i].peer == needed);
        awaited = awaited || (covers && steps_[i].phase >= step_.phase);
      }
      if (asked && !awaited) return {};
    }
    return "earlier awaits cover it";
  }

  /// On buffers where they lie an await guards what comes after it in members' memory; a rank that touches
  /// none, but that of `member`, who is awaited, before it awaits a later phase from all, or from one that
  /// awaited all (a root that is only served, ranks for which another works) does without.
  std::string awaits_later(int member) const {
    if (step_.kind != StepKind::await || !reaches_buffers(set_.medium)) return {};
    for (std::size_t i = mutant_.step + 1; i < steps_.size(); ++i) {
      if (steps_[i].kind == StepKind::await && covers_all(steps_[i])) return "a later await comes in time";
      const Uses uses = uses_of(program_, steps_[i]);
      if (touches_members(uses.reads, member) || touches_members(uses.writes, member)) return {};
    }
    return {};
  }

  /// Whether `later` waits for all members, or for one that has waited for all of them as the mutated step
  /// did.
  bool covers_all(const Step& later) const {
    if (later.peer == kSelf) return true;
    bool waited = false;
    for (const Step& theirs : set_.programs[static_cast<std::size_t>(later.peer)].lanes[0].steps) {
      waited |= theirs.kind == StepKind::await && theirs.peer == kSelf && theirs.phase >= step_.phase;
      if (theirs.kind == StepKind::publish && theirs.phase >= later.phase) return waited;
    }
    return false;
  }

  std::string duplicate() const {
    if (step_.kind == StepKind::await) return "awaiting twice is awaiting";
    const bool copies =
        step_.kind == StepKind::copy || (step_.kind == StepKind::reduce && step_.operand_count == 1);
    if (copies && !step_.finish) return "copies the same elements again";
    const Uses uses = uses_of(program_, step_);
    const bool feeds_itself = any_meet(set_, mutant_.rank, uses.writes, mutant_.rank, uses.reads);
    return is_local(step_) && !feeds_itself ? "done again from the same operands, with the same result" : "";
  }

  /// Which order two neighbours of a lane stand in does not matter when they have nothing to do with one
  /// another.
  std::string swap(const Step& first, const Step& second) const {
    const bool synchronise_first = first.kind == StepKind::publish || first.kind == StepKind::await;
    const bool synchronise_second = second.kind == StepKind::publish || second.kind == StepKind::await;
    // Deadlock aside, which the verifier finds.
    if (first.kind == StepKind::publish) return "what moves before a publish is only ordered more";
    if (first.kind == StepKind::await && !awaits_later(kSelf).empty()) return awaits_later(kSelf);
    if (synchronise_first && synchronise_second) return {};
    if (second.kind == StepKind::await) return "what moves behind an await is only ordered more";
    if (second.kind == StepKind::publish) return moved_behind_publish(first, second);
    if (first.kind == StepKind::await) return only_own_memory(second);

    const Uses one = uses_of(program_, first), other = uses_of(program_, second);
    const int rank = mutant_.rank;
    const bool meet = any_meet(set_, rank, one.writes, rank, other.reads) ||
                      any_meet(set_, rank, one.writes, rank, other.writes) ||
                      any_meet(set_, rank, one.reads, rank, other.writes);
    const bool one_stream = !is_local(first) && !is_local(second) && first.peer == second.peer;
    return meet || one_stream ? "" : "the two steps have no memory and no peer in common";
  }

  /// A step that touches only what no other rank can address may stand on either side of a synchronisation.
  /// (Registered input and output are shared.)
  std::string only_own_memory(const Step& step) const {
    const Uses uses = uses_of(program_, step);
    const auto own = [&](const Slice& slice) {
      return slice.member == kSelf && slice.space != Space::staging &&
             (set_.medium == Medium::domain_staged || slice.space == Space::scratch);
    };
    const bool all_own = std::all_of(uses.reads.begin(), uses.reads.end(), own) &&
                         std::all_of(uses.writes.begin(), uses.writes.end(), own);
    return all_own ? "touches only memory that no member can address" : "";
  }

  /// `step` moves behind `publish`, which so no longer says that it is done. Nobody needs to know when nobody
  /// who awaits that phase or a later one touches the same memory afterwards, in a way that matters.
  std::string moved_behind_publish(const Step& step, const Step& publish) const {
    const Uses mine = uses_of(program_, step);
    for (std::size_t rank = 0; rank < set_.programs.size(); ++rank) {
      const Program& other = set_.programs[rank];
      const int other_rank = static_cast<int>(rank);
      if (other_rank == mutant_.rank) continue;
      bool knows = false;
      for (const Step& theirs : other.lanes[0].steps) {
        if (theirs.kind == StepKind::await) {
          // The phase that now says it is the next one; who awaits that one learns of it all the same.
          knows = theirs.phase == publish.phase;
          continue;
        }
        const Uses uses = uses_of(other, theirs);
        const bool clash = any_meet(set_, mutant_.rank, mine.writes, other_rank, uses.reads) ||
                           any_meet(set_, mutant_.rank, mine.writes, other_rank, uses.writes) ||
                           any_meet(set_, mutant_.rank, mine.reads, other_rank, uses.writes);
        if (knows && clash) return {};
      }
    }
    // After the last phase a member may leave and take its registered memory with it.
    const bool last = publish.phase == program_.phases && reaches_buffers(set_.medium);
    if (last && (touches_members(mine.reads) || touches_members(mine.writes))) return {};
    return "nobody touches that memory between this phase and the next";
  }

  /// The contract wants one expression for an element on all ranks, whichever it is. The order of operands is
  /// free where every sum is formed by one rank and then copied.
  std::string flip_operands() const {
    if (set_.shapes[0].collective != Collective::all_reduce) return "one rank forms the result";
    const bool every_rank_sums =
        step_.kind == StepKind::reduce &&
        std::any_of(set_.programs.begin(), set_.programs.end(),
                    [&](const Program& other) { return &other != &program_ && sums_same_elements(other); });
    return every_rank_sums ? "" : "this rank alone forms the sum of these elements";
  }
  /// Whether `other` also has a reduce step that writes the same elements of its own output.
  bool sums_same_elements(const Program& other) const {
    const Uses mine = uses_of(program_, step_);
    for (const Lane& lane : other.lanes) {
      for (const Step& theirs : lane.steps) {
        if (theirs.kind != StepKind::reduce) continue;
        for (const Slice& slice : uses_of(other, theirs).writes) {
          for (const Slice& own : mine.writes) {
            const bool outputs = own.space == Space::output && slice.space == Space::output &&
                                 own.member == kSelf && slice.member == kSelf;
            if (outputs && slice.offset < own.offset + own.count && own.offset < slice.offset + slice.count)
              return true;
          }
        }
      }
    }
    return false;
  }

  std::string read_of_another() const {
    if (set_.medium == Medium::links || step_.kind != StepKind::copy) return {};
    const bool same = PassedOn(set_).is_held_alike({mutant_.rank, mutant_.step}, step_.src, mutant_.peer);
    return same ? "that member has the same by then, and keeps it" : "";
  }

  const ProgramSet& set_;
  const Mutant& mutant_;
  const Program& program_;
  const std::vector<Step>& steps_;
  const Step& step_;
};

}  // namespace

std::string why_equivalent(const ProgramSet& original, const Mutant& mutant) {
  return Argument(original, mutant).find();
}

}  // namespace lockstep::internal
