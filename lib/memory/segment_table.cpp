#include "lib/memory/segment_table.hpp"

#include "lib/net/fd.hpp"

namespace lockstep::internal {
namespace {

constexpr std::size_t kFirstCapacity = 64;

}  // namespace

// Loads acquire, so that the second look at the version cannot come before them; stores release, so that they
// cannot come before the version turned odd.
SegmentPlace SegmentTable::Row::load() const noexcept {
  return {begin.load(std::memory_order_acquire), end.load(std::memory_order_acquire),
          segment.load(std::memory_order_acquire)};
}

void SegmentTable::Row::store(const SegmentPlace& place) noexcept {
  begin.store(place.begin, std::memory_order_release);
  end.store(place.end, std::memory_order_release);
  segment.store(place.segment, std::memory_order_release);
}

// Index of the first row that begins above `address`.
std::size_t SegmentTable::Rows::upper_bound(std::uintptr_t address) const noexcept {
  std::size_t low = 0, high = count.load(std::memory_order_acquire);
  while (low < high) {
    const std::size_t middle = (low + high) / 2;
    if (row[middle].begin.load(std::memory_order_acquire) <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

SegmentTable::SegmentTable() {
  all_rows_.push_back(std::make_unique<Rows>(kFirstCapacity));
  rows_.store(all_rows_.back().get(), std::memory_order_release);
}

template <typename Look>
std::optional<SegmentPlace> SegmentTable::read(Look look) const noexcept {
  for (;;) {
    const std::uint64_t before = version_.load(std::memory_order_acquire);
    if (before % 2 != 0) {
      if (in_forked_child()) return std::nullopt;  // The writer stayed in the parent, in the middle of it.
      continue;
    }
    const std::optional<SegmentPlace> place = look(*rows_.load(std::memory_order_acquire));
    if (version_.load(std::memory_order_relaxed) == before) return place;
  }
}

std::optional<SegmentPlace> SegmentTable::find(std::uintptr_t begin, std::size_t bytes) const noexcept {
  return read([=](const Rows& rows) -> std::optional<SegmentPlace> {
    const std::size_t above = rows.upper_bound(begin);
    if (above == 0) return std::nullopt;
    const SegmentPlace place = rows.row[above - 1].load();
    if (begin >= place.end || bytes > place.end - begin) return std::nullopt;
    return place;
  });
}

std::optional<SegmentPlace> SegmentTable::find_segment(std::uint64_t segment) const noexcept {
  return read([=](const Rows& rows) -> std::optional<SegmentPlace> {
    const std::size_t count = rows.count.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < count; ++i) {
      if (rows.row[i].segment.load(std::memory_order_acquire) == segment) return rows.row[i].load();
    }
    return std::nullopt;
  });
}

template <typename Change>
void SegmentTable::write(Change change) {
  const std::uint64_t version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_relaxed);
  change(*rows_.load(std::memory_order_relaxed));
  version_.store(version + 2, std::memory_order_release);
}

// The current rows with room for one more.
SegmentTable::Rows& SegmentTable::grown() {
  Rows& old = *rows_.load(std::memory_order_relaxed);
  const std::size_t count = old.count.load(std::memory_order_relaxed);
  if (count < old.capacity) return old;
  all_rows_.push_back(std::make_unique<Rows>(2 * old.capacity));
  Rows& rows = *all_rows_.back();
  for (std::size_t i = 0; i < count; ++i) rows.row[i].store(old.row[i].load());
  rows.count.store(count, std::memory_order_relaxed);
  rows_.store(&rows, std::memory_order_release);
  return rows;
}

void SegmentTable::insert(const SegmentPlace& place) {
  grown();
  write([&](Rows& rows) {
    std::size_t at = rows.upper_bound(place.begin);
    if (at > 0 && rows.row[at - 1].begin.load(std::memory_order_relaxed) == place.begin) {
      rows.row[at - 1].store(place);
      return;
    }
    const std::size_t count = rows.count.load(std::memory_order_relaxed);
    for (std::size_t i = count; i > at; --i) rows.row[i].store(rows.row[i - 1].load());
    rows.row[at].store(place);
    rows.count.store(count + 1, std::memory_order_release);
  });
}

void SegmentTable::erase(std::uintptr_t begin) {
  write([&](Rows& rows) {
    const std::size_t count = rows.count.load(std::memory_order_relaxed);
    std::size_t at = rows.upper_bound(begin);
    if (at == 0 || rows.row[at - 1].begin.load(std::memory_order_relaxed) != begin) return;
    for (; at < count; ++at) rows.row[at - 1].store(rows.row[at].load());
    rows.count.store(count - 1, std::memory_order_release);
  });
}

}  // namespace lockstep::internal
