// Memory of the host backend. "Device" memory is a sealed memfd, so that other processes can map it for real:
// plain memory by a legacy handle, which names the exporter's process and descriptor, shareable memory by the
// descriptor itself. As CUDA does, it cuts small plain allocations from blocks, and maps nothing of a process
// over what is open already of the same addresses there.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "lib/device/backend.hpp"
#include "lib/memory/mapping.hpp"

namespace lockstep::internal {

class HostMemory {
 public:
  Result<void*> allocate(int device, std::size_t bytes, MemoryKind kind);
  /// As memory of virtual memory management that was mapped piece by piece into one range of addresses, with
  /// room left. The first piece is freed last.
  Result<void*> allocate_pieces(int device, std::size_t piece_bytes, int pieces);
  Status free(void* memory);
  Result<void*> allocate_pinned(std::size_t bytes);
  Status free_pinned(void* memory);
  Result<void*> register_host(void* memory, std::size_t bytes);
  Status unregister_host(void* memory);
  Allocation locate(const void* pointer);

  Result<MemoryExport> export_memory(const void* memory);
  Result<void*> import_memory(int device, const MemoryExport& memory);
  Status close_imported(void* base);

 private:
  /// What a legacy handle of this backend says. The inode tells a descriptor's number that was used again.
  struct HandleText {
    std::uint64_t magic = 0;
    std::int64_t pid = 0;
    std::int64_t descriptor = -1;
    std::uint64_t filesystem = 0, inode = 0;
    std::uint64_t base = 0, bytes = 0;  ///< Where it lies in the exporter.
  };
  static_assert(sizeof(HandleText) <= kLegacyHandleBytes);
  struct CutBlock {
    Mapping mapping;
    std::size_t used = 0;
  };
  enum class Origin : std::uint8_t { allocated, pinned, registered, imported };
  struct Block {
    Allocation facts;
    Origin origin = Origin::allocated;
    MemoryKind kind = MemoryKind::plain;
    Mapping mapping;                           ///< None for registered memory.
    Fd descriptor;                             ///< Of allocated memory.
    std::shared_ptr<const CutBlock> cut_from;  ///< Of small plain memory, which has no mapping of its own.
    HandleText handle;                         ///< Of what was imported by one.
  };

  static Result<LegacyHandle> make_handle(const Block& block);
  static Result<HandleText> read_handle(const LegacyHandle& handle);
  static Result<Fd> open_handle(const HandleText& text);
  Result<void*> cut(int device, std::size_t bytes);
  Status check_overlap(int device, const HandleText& text);
  void* insert(Block block);
  Status erase(void* base, Origin origin, const char* what);
  Block* find(const void* pointer);  ///< Under the lock.

  std::mutex mutex_;
  std::map<std::byte*, Block> blocks_;                   ///< By base.
  std::map<int, std::shared_ptr<CutBlock>> cut_blocks_;  ///< By device: of which the next are cut.
  std::uint64_t last_generation_ = 0;
};

}  // namespace lockstep::internal
