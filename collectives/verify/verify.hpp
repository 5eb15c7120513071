// Verifier: proves a collective's programs by symbolic execution of all ranks together.
#pragma once

#include <string>
#include <vector>

#include "collectives/programs/program.hpp"

namespace lockstep::internal {

/// The world's programs of one call; programs[r] was built from shapes[r].
struct ProgramSet {
  std::vector<Shape> shapes;
  std::vector<Program> programs;
  Medium medium = Medium::links;
  bool in_place = false;  ///< Input and output alias as the public contract of the collective says.
};

/// Empty when proved; otherwise the first finding, with rank, lane and step. Proves:
/// - it ends with zero buffering in the links (no deadlock), every message is received, counts match, at most
///   one lane per (peer, direction);
/// - every output element holds each rank's contribution exactly once, for the right element, by one
///   expression tree on all ranks, with `finish` applied exactly once and last for reductions;
/// - happens-before: nothing is read before it was written, overwritten while a lane or a member may still
///   read it; slices stay in their spaces;
/// - inputs are unchanged unless in place; scratch is not read before it is written;
/// - domain: `repeats` calls one after the other, with the staging halves alternating, do not disturb each
///   other.
std::string verify(const ProgramSet& set, int repeats = 3);

/// The programs of all ranks, out of place. For the v-collectives `counts` describes the world: scatter_v,
/// gather_v: the root's table, of which other ranks learn only their own entry. all_to_all_v: rank a sends
/// counts[(a + 2 b) % world] to rank b.
ProgramSet build_all(const Algorithm& algorithm, const Shape& shape_of_any_rank);

/// Verifies build_all's programs in place and out of place.
std::string verify_algorithm(const Algorithm& algorithm, const Shape& shape_of_any_rank);

}  // namespace lockstep::internal
