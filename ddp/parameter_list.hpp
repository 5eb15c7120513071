// What one rank brings to the construction of a Reducer, written down as texts: they are what is compared,
// and what the message shows.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/status.hpp"
#include "lockstep/ddp.hpp"

namespace lockstep::internal {

struct ParameterList {
  std::string problem;                  ///< Why this rank cannot take part; empty when it can.
  std::string options;                  ///< Those that all ranks must share.
  std::vector<std::string> parameters;  ///< describe() of each.

  bool operator==(const ParameterList&) const = default;
};

/// This rank's list, its problem filled in: no parameters, null pointer, a type without gradients, an
/// impossible shape.
ParameterList make_list(std::span<const Parameter> parameters, const ReducerOptions& options);

/// The list as bytes, and back; internal on bytes that are not a list.
std::string serialise(const ParameterList& list);
Result<ParameterList> parse(std::string_view bytes);

/// Judges the lists of all ranks, `lists[r]` of rank r, as rank `self`: the same verdict on every rank. A
/// rank's problem comes before any difference (invalid_argument there, refused elsewhere). Otherwise
/// mismatch: names the first parameter that differs from what most ranks have, both values, and the lowest
/// rank that deviates there. Pure.
Status compare(std::span<const ParameterList> lists, int self);

}  // namespace lockstep::internal
