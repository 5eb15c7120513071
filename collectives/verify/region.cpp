#include "collectives/verify/region.hpp"

#include <algorithm>

namespace lockstep::internal {

void append_run(Runs& runs, Run run) {
  if (run.count == 0) return;
  if (!runs.empty()) {
    Run& last = runs.back();
    const bool continues =
        last.value == run.value && (run.value == kUnwritten || last.element + last.count == run.element);
    if (continues) {
      last.count += run.count;
      return;
    }
  }
  runs.push_back(run);
}

Region::Region(std::uint64_t size) : size_(size) {
  if (size > 0) pieces_.push_back({0, {size, kUnwritten, 0}, {}, {}});
}

std::size_t Region::cut(std::uint64_t offset) {
  const auto after = std::upper_bound(pieces_.begin(), pieces_.end(), offset,
                                      [](std::uint64_t at, const Piece& piece) { return at < piece.begin; });
  const auto index = static_cast<std::size_t>(after - pieces_.begin());
  if (index == 0) return 0;
  Piece& before = pieces_[index - 1];
  if (before.begin == offset) return index - 1;
  if (offset >= before.begin + before.held.count) return index;
  Piece rest = before;
  const std::uint64_t kept = offset - before.begin;
  rest.begin = offset;
  rest.held.count -= kept;
  rest.held.element += kept;
  before.held.count = kept;
  pieces_.insert(pieces_.begin() + static_cast<std::ptrdiff_t>(index), std::move(rest));
  return index;
}

std::optional<Conflict> Region::read(Range range, Event reader, Clock clock, Runs& runs) {
  if (range.count == 0) return std::nullopt;
  const std::size_t first = cut(range.begin), end = cut(range.begin + range.count);
  for (std::size_t i = first; i < end; ++i) {
    Piece& piece = pieces_[i];
    if (!happened_before(piece.writer, clock)) return Conflict{piece.writer, true, piece.begin};
    append_run(runs, piece.held);
    // Whoever comes after this reader comes after the readers before it too.
    std::erase_if(piece.readers, [&](Event earlier) { return happened_before(earlier, clock); });
    piece.readers.push_back(reader);
  }
  return std::nullopt;
}

std::optional<Conflict> Region::write(Range range, Event writer, Clock clock, const Runs& runs) {
  if (range.count == 0) return std::nullopt;
  const std::size_t first = cut(range.begin), end = cut(range.begin + range.count);
  for (std::size_t i = first; i < end; ++i) {
    const Piece& piece = pieces_[i];
    if (!happened_before(piece.writer, clock)) return Conflict{piece.writer, true, piece.begin};
    for (const Event earlier : piece.readers) {
      if (!happened_before(earlier, clock)) return Conflict{earlier, false, piece.begin};
    }
  }
  // One piece per run: reuse the slots there are, then insert or erase the difference.
  const std::size_t have = end - first, want = runs.size();
  const auto at = [&](std::size_t index) { return pieces_.begin() + static_cast<std::ptrdiff_t>(index); };
  if (want > have) pieces_.insert(at(end), want - have, Piece{});
  if (want < have) pieces_.erase(at(first + want), at(end));
  std::uint64_t offset = range.begin;
  for (std::size_t i = 0; i < want; ++i) {
    Piece& piece = pieces_[first + i];
    piece.begin = offset;
    piece.held = runs[i];
    piece.writer = writer;
    piece.readers.clear();
    offset += runs[i].count;
  }
  return std::nullopt;
}

}  // namespace lockstep::internal
