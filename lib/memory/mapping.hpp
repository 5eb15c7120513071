// Memory descriptors and their mappings.
#pragma once

#include <cstddef>

#include "lib/base/status.hpp"
#include "lib/net/fd.hpp"

namespace lockstep::internal {

/// Bytes of a page, and `bytes` rounded up to whole pages.
std::size_t page_size() noexcept;
std::size_t round_up_to_pages(std::size_t bytes) noexcept;

/// Creates a memfd of `bytes` zeros whose size is sealed, so that no holder can turn a mapping of it into
/// SIGBUS. Pages come with the first touch. Not MFD_HUGETLB: its pages must be set aside by an administrator,
/// and one that is missing at first touch kills the process.
Result<Fd> make_memory_fd(const char* name, std::size_t bytes);

/// Touches every page of [data, data + bytes) for writing without changing a byte. Page-aligned.
Status populate(std::byte* data, std::size_t bytes);

/// A read-write mapping, unmapped by the destructor. Not thread-safe; the memory is what its users make of
/// it.
class Mapping {
 public:
  static constexpr std::size_t kAll = static_cast<std::size_t>(-1);

  Mapping() noexcept = default;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  /// Maps the first `bytes` of `fd` (kAll: all of it) shared and populates the first `populated` of them.
  /// Refuses a descriptor that is smaller or whose size is not sealed: it came from another process.
  static Result<Mapping> map(const Fd& fd, std::size_t bytes, std::size_t populated = kAll);
  /// A private copy of [offset, offset + bytes) of `fd`, made page by page as pages are written first. Until
  /// then a page is that of `fd`. Page-aligned; not populated.
  static Result<Mapping> map_copy(const Fd& fd, std::size_t offset, std::size_t bytes);
  /// Fresh private zeros, populated.
  static Result<Mapping> map_private(std::size_t bytes);

  std::byte* data() const noexcept { return data_; }
  std::size_t size() const noexcept { return size_; }

  /// Moves the mapping over [target, target + size()) and gives up ownership. Page-aligned. Shared memory
  /// there is replaced in one step; private memory is zeros just before, and stays so where this fails:
  /// nobody else may touch it meanwhile.
  Status move_over(std::byte* target);
  /// Gives up ownership: the caller unmaps.
  std::byte* release() noexcept;

 private:
  Mapping(std::byte* data, std::size_t size) noexcept : data_(data), size_(size) {}
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace lockstep::internal
