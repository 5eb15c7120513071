// Machine: the memory of all ranks, and what the steps do to it. The two runs (link_machine, domain_machine)
// decide which step comes next and what its thread knows of the others; the machine moves expressions and
// finds accesses that are not ordered.
#pragma once

#include <string>
#include <vector>

#include "collectives/verify/region.hpp"
#include "collectives/verify/results.hpp"
#include "collectives/verify/verify.hpp"

namespace lockstep::internal {

/// A step of a rank as it runs: which call (calls alternate between the staging halves), and its place in the
/// order of events.
struct Moment {
  int rank = 0;
  int call = 0;
  Event event;
  Clock clock;
};

/// Every function returns an empty string or a finding (without the name of the step at hand).
class Machine {
 public:
  explicit Machine(const ProgramSet& set);
  virtual ~Machine() = default;

 protected:
  /// The caller of a collective: before a call it writes the input, and the output loses its meaning; after
  /// it, it reads the output and uses the input again.
  std::string enter(const Moment& now);
  std::string leave(const Moment& now);

  /// copy and reduce.
  std::string run_local(const Moment& now, const Step& step);
  /// A message from a send to a recv or recv_reduce.
  std::string run_transfer(const Moment& from, const Step& send, const Moment& to, const Step& recv);

  /// "rank 2 lane 0 step 3 (...)": an event that touched memory of `owner`.
  virtual std::string name(int owner, Event event) const = 0;

  const ProgramSet& set() const { return set_; }
  int world() const { return static_cast<int>(set_.programs.size()); }
  const Program& program(int rank) const { return set_.programs[static_cast<std::size_t>(rank)]; }

 private:
  /// Memory of one rank. In place, input and output are parts of `input`.
  struct RankMemory {
    Region input, output, scratch;
    std::vector<Region> staging;  ///< Two halves.
    InPlace layout;               ///< exists: the call is in place.
  };
  struct Place {
    Region* region;
    Range range;
    int owner;
  };
  Place place(const Moment& now, const Slice& slice);
  bool copies_onto_itself(const Moment& now, const Step& step);
  static std::string overlap(const Place& one, const Place& other);
  std::string read(const Moment& now, const Place& place, Runs& runs);
  std::string write(const Moment& now, const Place& place, const Runs& runs);
  std::string conflict(const Conflict& conflict, const char* attempt, int owner) const;
  /// Combines the first `operands` of operands_ element by element into result_.
  std::string combine(std::size_t operands, bool finish);

  const ProgramSet& set_;
  Expressions expressions_;
  ResultCheck results_;
  std::vector<RankMemory> memory_;
  // Reused by every step.
  std::vector<Runs> operands_;
  std::vector<Place> sources_;
  std::vector<Expression> values_;
  Runs result_;
};

}  // namespace lockstep::internal
