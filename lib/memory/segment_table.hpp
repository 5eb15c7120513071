// SegmentTable: which address belongs to which segment, read without a lock on the path of every collective.
//
// A sorted array under a sequence lock: a reader retries when the version was odd or moved, so it never waits
// for a lock and never writes. The array's words are atomics because readers overlap a writer. A full array
// is replaced by one twice as large and kept, since a reader may still be in it: together they are smaller
// than the current one.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace lockstep::internal {

/// One segment's place. Ranges of different entries do not overlap.
struct SegmentPlace {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::uint64_t segment = 0;
};

class SegmentTable {
 public:
  SegmentTable();

  /// The entry that holds all of [begin, begin + bytes). Thread-safe, lock-free but for a writer in the
  /// middle of a change.
  std::optional<SegmentPlace> find(std::uintptr_t begin, std::size_t bytes) const noexcept;
  /// The entry of a segment. Thread-safe; looks at every entry.
  std::optional<SegmentPlace> find_segment(std::uint64_t segment) const noexcept;

  /// Writers: one at a time (the caller's lock). insert() replaces the entry that begins at the same address.
  void insert(const SegmentPlace& place);
  void erase(std::uintptr_t begin);

 private:
  struct Row {
    std::atomic<std::uintptr_t> begin{0}, end{0};
    std::atomic<std::uint64_t> segment{0};
    SegmentPlace load() const noexcept;
    void store(const SegmentPlace& place) noexcept;
  };
  struct Rows {
    explicit Rows(std::size_t capacity_) : capacity(capacity_), row(new Row[capacity_]) {}
    const std::size_t capacity;
    std::atomic<std::size_t> count{0};
    std::unique_ptr<Row[]> row;
    std::size_t upper_bound(std::uintptr_t address) const noexcept;
  };
  template <typename Look>
  std::optional<SegmentPlace> read(Look look) const noexcept;
  template <typename Change>
  void write(Change change);
  Rows& grown();

  std::atomic<std::uint64_t> version_{0};  ///< Odd while a writer is at work.
  std::atomic<Rows*> rows_{nullptr};
  std::vector<std::unique_ptr<Rows>> all_rows_;
};

}  // namespace lockstep::internal
