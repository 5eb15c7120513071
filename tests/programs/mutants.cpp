#include "tests/programs/mutants.hpp"

#include "collectives/verify/structure.hpp"

namespace lockstep::internal {
namespace {

using Visit = std::function<void(const Mutant&, const ProgramSet&)>;

/// Dependencies on steps of a lane from number `first` on move by `by`, as if the lane had been written so.
void move_tickets(Program& program, std::size_t lane, std::uint32_t first, int by) {
  for (Lane& other : program.lanes) {
    for (Step& step : other.steps) {
      for (After& after : step.after) {
        const bool later = after.lane == lane && after.steps >= first;
        if (later) after.steps = static_cast<std::uint32_t>(static_cast<int>(after.steps) + by);
      }
    }
  }
}
void drop_step(Program& program, std::size_t lane, std::size_t step) {
  move_tickets(program, lane, static_cast<std::uint32_t>(step + 1), -1);
  auto& steps = program.lanes[lane].steps;
  steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(step));
}

/// Makes the mutants of one step.
class Mutator {
 public:
  Mutator(ProgramSet& set, const Visit& visit, int rank, std::size_t lane, std::size_t step)
      : set_(set),
        visit_(visit),
        rank_(rank),
        lane_(lane),
        index_(step),
        program_(set.programs[static_cast<std::size_t>(rank)]) {}

  void run() {
    mutate(Mistake::drop, "without", [&] { drop(); });
    mutate(Mistake::duplicate, "twice", [&] { duplicate(); });
    if (index_ + 1 < steps().size()) mutate(Mistake::swap, "after the next step", [&] { swap(); });
    shift_slices();
    change_peers();
    for (std::size_t i = 0; i < std::size(step().after); ++i) {
      if (step().after[i].steps == 0) continue;
      mutate(Mistake::forget_after, "without dependency " + std::to_string(i), [&] { step().after[i] = {}; });
    }
    if (step().kind == StepKind::await && step().phase > 1)
      mutate(Mistake::early_phase, "a phase early", [&] { --step().phase; });
    const bool stores = step().kind == StepKind::copy || step().kind == StepKind::reduce ||
                        step().kind == StepKind::recv_reduce;
    if (stores) mutate(Mistake::flip_finish, "finish flipped", [&] { step().finish = !step().finish; });
    swap_operands();
  }

 private:
  std::vector<Step>& steps() { return program_.lanes[lane_].steps; }
  Step& step() { return steps()[index_]; }

  template <typename Change>
  void mutate(Mistake mistake, const std::string& how, Change change, int peer = kSelf) {
    const Program original = program_;
    const Mutant mutant{mistake, rank_, lane_,
                        index_,  peer,  name_step(set_, rank_, lane_, index_) + " " + how};
    change();
    visit_(mutant, set_);
    program_ = original;
  }

  void drop() { drop_step(program_, lane_, index_); }
  void duplicate() {
    move_tickets(program_, lane_, static_cast<std::uint32_t>(index_ + 1), 1);
    const Step copy = step();
    steps().insert(steps().begin() + static_cast<std::ptrdiff_t>(index_), copy);
  }
  void swap() {
    const auto mine = static_cast<std::uint32_t>(index_ + 1);  // a ticket counts the steps up to its own
    for (Lane& lane : program_.lanes) {
      for (Step& other : lane.steps) {
        for (After& after : other.after) {
          if (after.lane == lane_ && after.steps == mine) {
            after.steps = mine + 1;
          } else if (after.lane == lane_ && after.steps == mine + 1) {
            after.steps = mine;
          }
        }
      }
    }
    std::swap(steps()[index_], steps()[index_ + 1]);
  }

  struct Used {
    std::function<Slice&()> slice;  ///< The way to it in the (possibly restored) program.
    bool is_read;
  };
  std::vector<Used> used_slices() {
    std::vector<Used> slices;
    const auto add_listed = [&](std::uint32_t first, std::uint32_t count, bool is_read) {
      for (std::uint32_t i = first; i < first + count; ++i)
        slices.push_back({[this, i]() -> Slice& { return program_.slices[i]; }, is_read});
    };
    const StepKind kind = step().kind;
    const bool source = kind == StepKind::send || kind == StepKind::copy || kind == StepKind::recv_reduce;
    const bool destination =
        kind == StepKind::recv || kind == StepKind::copy || kind == StepKind::recv_reduce;
    if (source) slices.push_back({[this]() -> Slice& { return step().src; }, true});
    if (destination) slices.push_back({[this]() -> Slice& { return step().dst; }, false});
    if (kind == StepKind::reduce) {
      add_listed(step().operands, step().operand_count, true);
      add_listed(step().destinations, step().destination_count, false);
    }
    return slices;
  }

  void shift_slices() {
    for (const Used& used : used_slices()) {
      const auto& slice = used.slice;
      if (slice().count == 0) continue;
      mutate(Mistake::shift, "with a slice one later", [&] { ++slice().offset; });
      if (slice().offset > 0) mutate(Mistake::shift, "with a slice one earlier", [&] { --slice().offset; });
    }
  }

  void change_peers() {
    const int world = static_cast<int>(set_.programs.size());
    const StepKind kind = step().kind;
    const bool exchanges = kind == StepKind::send || kind == StepKind::recv || kind == StepKind::recv_reduce;
    for (int other = 0; other < world; ++other) {
      if (other == rank_) continue;
      const std::string named = std::to_string(other);
      if (exchanges && other != step().peer)
        mutate(
            Mistake::wrong_peer, "with peer " + named, [&] { step().peer = other; }, other);
      if (kind == StepKind::await && world > 2 && other != step().peer)
        mutate(
            Mistake::wrong_peer, "of " + named + " alone", [&] { step().peer = other; }, other);
      for (const auto& [slice, is_read] : used_slices()) {
        const bool shared = slice().member != kSelf || slice().space == Space::staging;
        if (shared && slice().member != other)
          mutate(
              is_read ? Mistake::wrong_source : Mistake::wrong_peer, "with member " + named,
              [&, &at = slice] { at().member = other; }, other);
      }
    }
  }

  void swap_operands() {
    if (step().kind == StepKind::recv_reduce) {
      mutate(Mistake::flip_operands, "operands swapped",
             [&] { step().received_first = !step().received_first; });
    } else if (step().kind == StepKind::reduce && step().operand_count > 1) {
      mutate(Mistake::flip_operands, "operands swapped",
             [&] { std::swap(program_.slices[step().operands], program_.slices[step().operands + 1]); });
    }
  }

  ProgramSet& set_;
  const Visit& visit_;
  int rank_;
  std::size_t lane_, index_;
  Program& program_;
};

}  // namespace

void for_each_mutant(ProgramSet& set, const Visit& visit) {
  for (int rank = 0; rank < static_cast<int>(set.programs.size()); ++rank) {
    const auto& lanes = set.programs[static_cast<std::size_t>(rank)].lanes;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      for (std::size_t step = 0; step < lanes[lane].steps.size(); ++step)
        Mutator(set, visit, rank, lane, step).run();
    }
  }
}

namespace {

/// Drops the index-th message to or from `peer` on one side. False when there are fewer.
bool drop_message(Program& program, bool sent, int peer, int index) {
  for (std::size_t lane = 0; lane < program.lanes.size(); ++lane) {
    const auto& steps = program.lanes[lane].steps;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const bool received = steps[i].kind == StepKind::recv || steps[i].kind == StepKind::recv_reduce;
      const bool matches = steps[i].peer == peer && (sent ? steps[i].kind == StepKind::send : received);
      if (!matches || index-- > 0) continue;
      drop_step(program, lane, i);
      return true;
    }
  }
  return false;
}

void drop_phase(Program& program, std::uint32_t phase) {
  auto& steps = program.lanes[0].steps;
  std::erase_if(steps, [&](const Step& step) {
    return step.phase == phase && (step.kind == StepKind::publish || phase == 1);
  });
  for (Step& step : steps) {
    if (step.phase >= phase) --step.phase;
  }
  --program.phases;
}

}  // namespace

void for_each_shared_mutant(ProgramSet& set,
                            const std::function<void(const std::string&, const ProgramSet&)>& visit) {
  const std::vector<Program> original = set.programs;
  for (std::size_t from = 0; from < original.size(); ++from) {
    for (std::size_t to = 0; to < original.size(); ++to) {
      for (int index = 0; drop_message(set.programs[from], true, static_cast<int>(to), index); ++index) {
        drop_message(set.programs[to], false, static_cast<int>(from), index);
        visit("without message " + std::to_string(index) + " from " + std::to_string(from) + " to " +
                  std::to_string(to),
              set);
        set.programs = original;
      }
    }
  }
  for (std::uint32_t phase = 1; phase <= original[0].phases; ++phase) {
    for (Program& program : set.programs) drop_phase(program, phase);
    visit("without phase " + std::to_string(phase), set);
    set.programs = original;
  }
}

}  // namespace lockstep::internal
