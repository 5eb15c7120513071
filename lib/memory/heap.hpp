// Heap: the process's registered memory. lockstep::allocate and its siblings are thin covers of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>

#include "lib/base/status.hpp"
#include "lib/memory/segment_table.hpp"

namespace lockstep::internal {

/// Thread-safe. Every live block is one segment: one memfd, offered by the descriptor service, and one row of
/// table().
///
/// A freed block is kept (up to kReuseBytes in all) and handed out again, zeroed, to the next allocation of
/// the same size: its pages are touched and mapped here, and peers still have it mapped. What is not kept
/// gives its pages back at once, even where peers have it mapped.
///
/// A block of which pages were made private is a block still, but no segment any more: it has no row.
class Heap {
 public:
  /// Never destroyed: memory may be freed by destructors of static objects.
  static Heap& instance();

  Result<std::byte*> allocate(std::size_t bytes);
  /// Aborts the process when `pointer` is no block of allocate(), as the C library's free does. Does nothing
  /// in a forked child.
  void free(void* pointer) noexcept;

  Status adopt(void* pointer, std::size_t bytes);
  Status give_back(void* pointer);
  Status make_private(const void* pointer, std::size_t bytes);
  bool is_private(const void* pointer, std::size_t bytes);
  /// Of a live block, also where it has no row in table(). Looks at every block.
  std::optional<SegmentPlace> place_of(std::uint64_t segment);

  const SegmentTable& table() const noexcept { return table_; }

 private:
  struct Block {
    std::byte* data = nullptr;
    std::size_t bytes = 0;  ///< Whole pages.
    std::uint64_t segment = 0;
    bool adopted = false;
  };
  using Blocks = std::map<std::uintptr_t, Block>;

  Heap() = default;
  Result<Block> make_block(std::size_t bytes);
  Block take_kept(std::size_t bytes);
  void keep(const Block& block);
  bool release_kept();
  bool release_kept_locked();
  static void release(const Block& block);
  Block* block_of(const void* pointer);
  Status check_adoptable(std::uintptr_t begin, std::size_t bytes) const;
  static SegmentPlace place_of(const Block& block);
  void enter(const Block& block);
  Status take_pages(const Block& block, std::uintptr_t begin, std::uintptr_t end);
  bool is_private_locked(const void* pointer, std::size_t bytes) const;
  bool forget_private(const Block& block);

  std::mutex mutex_;
  Blocks blocks_;          ///< By address; live blocks only.
  std::list<Block> kept_;  ///< Oldest first.
  std::size_t kept_bytes_ = 0;
  std::uint64_t last_segment_ = 0;
  std::map<std::uintptr_t, std::uintptr_t>
      private_;  ///< Pages of blocks that peers reach no more: begin, end.
  SegmentTable table_;
};

}  // namespace lockstep::internal
