// Program: one rank's part of one collective, as data. An algorithm is a pure function Shape -> Program; the
// engine runs it, the verifier proves it, the cost model prices it, `lockstep-bench --programs` prints it.
//
// A program has lanes. The steps of a lane run in order; lanes run side by side; a step may wait for steps of
// other lanes (`after`). Over links: messages from rank a to rank b arrive in the order of a's program, so
// all sends to one peer stand in ONE lane, and so do all receives from one peer; the k-th send of a to b
// meets the k-th receive of b from a, with equal counts. Programs are correct with zero buffering: a send may
// not complete before its receive runs. In a domain (shared memory): `publish` raises this rank's phase,
// `await` waits for members' phases, `reduce` and `copy` name members' memory. One lane. All ranks of one
// shape publish the same number of phases.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "lib/base/status.hpp"
#include "lockstep/types.hpp"

namespace lockstep::internal {

/// Which memory a slice lies in.
enum class Space : std::uint8_t {
  input,  ///< The call's input (in place: the same memory as output, shifted as the call's contract says).
  output,
  scratch,  ///< Private temporary of Program::scratch elements.
  staging,  ///< Domain: `member`'s staging area, the part of it that is this call's.
};

/// `count` elements from element `offset` of a space. `member`: whose (domain programs); kSelf for this rank.
inline constexpr std::int32_t kSelf = -1;
struct Slice {
  Space space = Space::input;
  std::int32_t member = kSelf;
  std::uint64_t offset = 0;
  std::uint64_t count = 0;
  bool operator==(const Slice&) const = default;
};

enum class StepKind : std::uint8_t {
  send,         ///< src -> peer
  recv,         ///< peer -> dst
  recv_reduce,  ///< dst = src op received (or received op src when received_first). src and dst are both
                ///< local, may be equal.
  copy,         ///< dst = src. Nothing at all where both are the same memory, as an own block is in place.
  reduce,       ///< each destination slice = operand slices combined from left to right (local or members')
  publish,      ///< my phase becomes `phase`: everything I wrote before is visible to who awaits it
  await,        ///< wait until member `peer` (all members when kSelf) published `phase` or more
};

/// A dependency: step number `steps` - 1 of lane `lane` (and so all before it) is complete. steps == 0: none.
struct After {
  std::uint32_t lane = 0;
  std::uint32_t steps = 0;
  bool operator==(const After&) const = default;
};

struct Step {
  StepKind kind = StepKind::copy;
  bool finish = false;  ///< The stored value is the complete reduction: apply avg's division here.
  /// recv_reduce: operand order, so that all ranks evaluate one expression tree.
  bool received_first = false;
  std::int32_t peer = kSelf;
  std::uint32_t phase = 0;                                ///< publish, await: 1, 2, ... within this program.
  Slice src;                                              ///< send, copy, recv_reduce
  Slice dst;                                              ///< recv, copy, recv_reduce
  std::uint32_t operands = 0, operand_count = 0;          ///< reduce: range of Program::slices
  std::uint32_t destinations = 0, destination_count = 0;  ///< reduce: range of Program::slices
  After after[2];
};

struct Lane {
  std::vector<Step> steps;
};

struct Program {
  std::vector<Lane> lanes;
  std::vector<Slice> slices;  ///< Operands and destinations of reduce steps.
  std::uint64_t scratch = 0;  ///< Elements.
  std::uint32_t phases = 0;   ///< Domain: phases published; equal on all ranks.
};

/// What a program is built from: the facts that all ranks share, and who is asking. For the v-collectives the
/// blocks lie one after the other.
struct Shape {
  Collective collective = Collective::all_reduce;
  int rank = 0;
  int world = 1;
  int root = 0;
  /// As in the public call: all_reduce, reduce, broadcast: whole buffer. scatter, gather, all_gather,
  /// reduce_scatter, all_to_all: per block.
  std::uint64_t count = 0;
  /// all_gather_v, reduce_scatter_v: every rank's count, on all ranks. scatter_v, gather_v: every rank's
  /// count at root; elsewhere only counts[rank] is meaningful. all_to_all_v: what this rank sends to each.
  std::vector<std::uint64_t> counts;
  std::vector<std::uint64_t> recv_counts;  ///< all_to_all_v: what this rank receives from each.
  std::uint64_t segment = 0;               ///< Elements of one pipelined message; 0 = the whole slice in one.
  bool streams = false;  ///< Links hand out what has arrived of a message (Transport::streams).
  /// Domain: elements in the half of each member's staging area that this call may use.
  std::uint64_t staging = 0;
  /// By rank: which host it is on, numbered in the order in which the ranks meet them. Empty where all ranks
  /// are on one host.
  std::vector<int> hosts;
};

enum class Medium : std::uint8_t {
  links,              ///< send, recv, recv_reduce, copy, reduce on own memory
  domain_staged,      ///< members' staging only: private buffers
  domain_registered,  ///< members' input and output too
  domain_pulled,      ///< copies from members' inputs alone, which the kernel does, too (CMA)
};
inline constexpr int kMedia = 4;
/// Whether its programs reach members' buffers where they lie.
constexpr bool reaches_buffers(Medium medium) {
  return medium == Medium::domain_registered || medium == Medium::domain_pulled;
}

/// A row of the algorithm table.
struct Algorithm {
  std::string_view name;  ///< "ring"; unique per (collective, medium) and the name used in options
  Collective collective;
  Medium medium;
  std::string_view description;  ///< One line: idea, steps, paper
  bool (*supports)(const Shape&);
  Program (*build)(const Shape&);
  /// Beyond so many ranks it gains by what only devices have: on host memory it then runs where its name is
  /// asked for, and is not chosen.
  int most_on_hosts = std::numeric_limits<int>::max();
  /// In a domain: sums of some of the ranks are stored on their way. (Over links they may always be.)
  bool stores_partial_sums = false;
  /// On members' buffers: all are left as they are, since every rank writes to its own output alone.
  bool only_reads = false;
};

/// All algorithms; the position of a row + 1 is its wire number (CallFacts::algorithm), so append only within
/// one protocol version.
std::span<const Algorithm> algorithms();

/// The row for a name. Errors: unknown name (lists the known ones, names the nearest), or known but not for
/// this collective.
Result<const Algorithm*> find_algorithm(Collective collective, Medium medium, std::string_view name);
/// The first row of that name, medium by medium.
Result<const Algorithm*> find_algorithm(Collective collective, std::initializer_list<Medium> media,
                                        std::string_view name);

/// Human-readable listing of a program, a line a step (for --programs and for failed proofs), and of one
/// step.
std::string to_string(const Program& program);
std::string to_string(const Program& program, const Step& step);

/// First element and length of part `index` of `count` elements cut into `parts` nearly equal parts (the
/// first count % parts are one longer).
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t count = 0;
};
constexpr Range part_of(std::uint64_t count, std::uint64_t parts, std::uint64_t index) {
  const std::uint64_t base = count / parts, extra = count % parts;
  const std::uint64_t begin = index * base + (index < extra ? index : extra);
  return {begin, base + (index < extra ? 1 : 0)};
}

}  // namespace lockstep::internal
