// Region: a stretch of memory as the verifier sees it. For every element it knows what it holds, who wrote it
// last, and who has read it since; every access is checked against those it is not ordered with. Elements
// that share all this are kept as one piece.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collectives/programs/program.hpp"
#include "collectives/verify/expressions.hpp"

namespace lockstep::internal {

/// A moment of a thread (a lane, or a rank): its time-th step. Time 0 is before everything.
struct Event {
  std::uint32_t thread = 0;
  std::uint32_t time = 0;
};

/// What a thread knows: for each thread the latest event that happened before (vector clock).
using Clock = std::span<const std::uint32_t>;
inline bool happened_before(Event event, Clock clock) { return event.time <= clock[event.thread]; }

/// Consecutive elements that hold one expression, of consecutive elements of the call's inputs from `element`
/// on.
struct Run {
  std::uint64_t count = 0;
  Expression value = kUnwritten;
  std::uint64_t element = 0;
};
using Runs = std::vector<Run>;
/// Appends, joined with the last run where it continues it.
void append_run(Runs& runs, Run run);

/// An earlier access that is not ordered with the one attempted.
struct Conflict {
  Event other;
  bool other_writes = false;
  std::uint64_t offset = 0;
};

class Region {
 public:
  explicit Region(std::uint64_t size);
  std::uint64_t size() const { return size_; }

  /// Appends what `range` holds to `runs`, and remembers the reader.
  std::optional<Conflict> read(Range range, Event reader, Clock clock, Runs& runs);
  /// Stores `runs`, which are as long as `range`.
  std::optional<Conflict> write(Range range, Event writer, Clock clock, const Runs& runs);

 private:
  struct Piece {
    std::uint64_t begin = 0;
    Run held;  ///< held.count: length of the piece
    Event writer;
    std::vector<Event> readers;  ///< Since it was written; only those that are not ordered with one another.
  };
  /// Index of the piece that begins at `offset`, made by a cut when there is none; the number of pieces at
  /// the end.
  std::size_t cut(std::uint64_t offset);

  std::uint64_t size_;
  std::vector<Piece> pieces_;  ///< Adjacent, sorted, covering the region.
};

}  // namespace lockstep::internal
