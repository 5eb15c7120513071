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
/// - it ends with zero buffering in the links (no deadlock), every message is received, counts match, at most one lane per (peer, direction);
/// - every output element holds each rank's contribution exactly once, for the right element, by one expression tree on all
///   ranks, with `finish` applied exactly once and last for reductions;
/// - happens-before: nothing is read before it was written, overwritten while a lane or a member may still read it; slices stay in their spaces;
/// - inputs are unchanged unless in place; scratch is not read before it is written;
/// - domain: `repeats` calls one after the other, with the staging halves alternating, do not disturb each other.
std::string verify(const ProgramSet& set, int repeats = 3);

/// Builds the programs of all ranks and verifies them in place and out of place.
std::string verify_algorithm(const Algorithm& algorithm, const Shape& shape_of_any_rank);

}  // namespace lockstep::internal
