#include "tests/programs/passed_on.hpp"

#include <algorithm>

#include "tests/programs/uses.hpp"

namespace lockstep::internal {
namespace {

bool is_own_place(const Slice& slice) { return slice.space == Space::staging && slice.member == kSelf; }
bool overlap(const Slice& one, const Slice& other) {
  return one.offset < other.offset + other.count && other.offset < one.offset + one.count;
}

}  // namespace

const std::vector<Step>& PassedOn::steps(int rank) const {
  return set_.programs[static_cast<std::size_t>(rank)].lanes[0].steps;
}

/// To its own staging memory; programs write to no other.
std::vector<Slice> PassedOn::writes(Point point) const {
  const Program& program = set_.programs[static_cast<std::size_t>(point.rank)];
  std::vector<Slice> own = uses_of(program, steps(point.rank)[point.step]).writes;
  std::erase_if(own, [](const Slice& slice) { return !is_own_place(slice); });
  return own;
}

bool PassedOn::is_held_alike(Point point, const Slice& slice, int other) const {
  if (slice.space != Space::staging) return false;
  const int owner = slice.member == kSelf ? point.rank : slice.member;
  const Point theirs{other, known_steps(point, other)};
  const auto formed = origin({owner, known_steps(point, owner)}, slice);
  return formed && formed == origin(theirs, slice) && keeps(theirs, slice, point);
}

std::optional<PassedOn::Point> PassedOn::origin(Point at, const Slice& place) const {
  while (at.step-- > 0) {
    for (const Slice& written : writes(at)) {
      if (!overlap(written, place)) continue;
      if (written.offset != place.offset || written.count != place.count) return {};
      const Step& step = steps(at.rank)[at.step];
      if (step.kind != StepKind::copy || step.src.space != Space::staging) return at;
      const int from = step.src.member == kSelf ? at.rank : step.src.member;
      return origin({from, known_steps(at, from)}, step.src);
    }
  }
  return {};
}

/// By the latest await of each member, and what that member knew when it published.
std::size_t PassedOn::known_steps(Point point, int member) const {
  if (member == point.rank) return point.step;
  std::vector<bool> seen(set_.programs.size());
  std::size_t known = 0;
  while (point.step-- > 0) {
    const Step& await = steps(point.rank)[point.step];
    if (await.kind != StepKind::await) continue;
    for (int peer = 0; peer < static_cast<int>(seen.size()); ++peer) {
      const bool awaited = peer != point.rank && (await.peer == kSelf || await.peer == peer);
      if (!awaited || seen[static_cast<std::size_t>(peer)]) continue;
      seen[static_cast<std::size_t>(peer)] = true;
      const auto& theirs = steps(peer);
      const auto published = std::find_if(theirs.begin(), theirs.end(), [&](const Step& step) {
        return step.kind == StepKind::publish && step.phase == await.phase;
      });
      known =
          std::max(known, known_steps({peer, static_cast<std::size_t>(published - theirs.begin())}, member));
    }
  }
  return known;
}

bool PassedOn::keeps(Point holder, const Slice& place, Point reader) const {
  for (; holder.step < steps(holder.rank).size(); ++holder.step) {
    const std::vector<Slice> written = writes(holder);
    const bool replaced = std::any_of(written.begin(), written.end(),
                                      [&](const Slice& slice) { return overlap(slice, place); });
    if (replaced && known_steps(holder, reader.rank) <= reader.step) return false;
  }
  return true;
}

}  // namespace lockstep::internal
