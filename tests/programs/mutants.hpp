// Programs with one mistake each: what a programmer might get wrong, for the verifier to find.
#pragma once

#include <functional>
#include <string>

#include "collectives/verify/verify.hpp"

namespace lockstep::internal {

enum class Mistake : std::uint8_t {
  drop,           ///< a step is missing
  duplicate,      ///< a step is there twice
  swap,           ///< a step and the next one are in the wrong order
  shift,          ///< one slice begins an element too late, or too early
  wrong_peer,     ///< another rank's message or phase, or its memory is written
  wrong_source,   ///< another rank's memory is read
  forget_after,   ///< one dependency is missing
  early_phase,    ///< an await is content with the phase before
  flip_finish,    ///< the result is not finished, or something else is
  flip_operands,  ///< two operands of a reduction stand in the other order
};

/// A mutant: which step of which rank has which mistake.
struct Mutant {
  Mistake mistake;
  int rank;
  std::size_t lane, step;
  int peer;          ///< wrong_peer, wrong_source: the other rank named.
  std::string what;  ///< For messages.
};

/// Calls visit(mutant, set) for every mutant of `set`. The set is the mutated one during the visit and the
/// original one again after it.
void for_each_mutant(ProgramSet& set, const std::function<void(const Mutant&, const ProgramSet&)>& visit);

/// The same for mistakes that all ranks make alike: a message that is neither sent nor received, a phase that
/// is neither published nor awaited.
void for_each_shared_mutant(ProgramSet& set,
                            const std::function<void(const std::string& what, const ProgramSet&)>& visit);

/// Why a mutant is as right as the original, or empty when it must be found. Argued from the original
/// programs alone, without the verifier.
std::string why_equivalent(const ProgramSet& original, const Mutant& mutant);

}  // namespace lockstep::internal
