// PassedOn: who holds what in staging memory where members pass it on unchanged, told from the programs of a
// domain alone.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "collectives/verify/verify.hpp"

namespace lockstep::internal {

class PassedOn {
 public:
  explicit PassedOn(const ProgramSet& set) : set_(set) {}

  /// Step number `step` of a rank, or what a rank has done before it.
  struct Point {
    int rank = 0;
    std::size_t step = 0;
    bool operator==(const Point&) const = default;
  };
  /// Whether `other` holds at `point` the same as the owner of `slice`, a place of staging memory, and keeps
  /// it until it knows that point.rank is past `point`. (The half of the next call is another one, and before
  /// the call after that everybody has left this one.)
  bool is_held_alike(Point point, const Slice& slice, int other) const;

 private:
  const std::vector<Step>& steps(int rank) const;
  std::vector<Slice> writes(Point point) const;
  /// The step that formed what lies in a place of `at.rank`'s; none where no step wrote it as a whole.
  std::optional<Point> origin(Point at, const Slice& place) const;
  /// How many steps of `member` are known to be done at `point`.
  std::size_t known_steps(Point point, int member) const;
  bool keeps(Point holder, const Slice& place, Point reader) const;

  const ProgramSet& set_;
};

}  // namespace lockstep::internal
