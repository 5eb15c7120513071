// The check at construction of a Reducer: do all ranks train the same model with the same options? The ranks
// exchange 24 bytes (hash and length of their parameter lists, and what need not be equal) and, only when
// these differ, the lists themselves.
#pragma once

#include <span>
#include <string>

#include "lockstep/ddp.hpp"

namespace lockstep::internal {

/// Whose parameters are checked.
struct ParameterOwner {
  std::string name;          ///< Errors begin with it.
  std::string problem = {};  ///< Why this rank cannot take part, whatever its list is; empty when it can.
};

/// Collective. Throws on every rank, with the verdict of compare(), unless all ranks have equal lists without
/// a problem. Returns, the same on all ranks, whether every rank allows that gradients are laid out anew.
bool check_parameters(Communicator& communicator, std::span<const Parameter> parameters,
                      const ReducerOptions& options, const ParameterOwner& owner);

/// The same of all once `added` have joined `parameters`.
bool check_joining(Communicator& communicator, std::span<const Parameter> parameters,
                   std::span<const Parameter> added, const ReducerOptions& options,
                   const ParameterOwner& owner);

/// What a rank does instead that cannot even give a list, because of the owner's problem: throws on every
/// rank, too.
[[noreturn]] void refuse_parameters(Communicator& communicator, const ParameterOwner& owner);

}  // namespace lockstep::internal
