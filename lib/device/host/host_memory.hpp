// Memory of the host backend. "Device" memory is a sealed memfd, so that other processes can map it for real:
// plain memory by a legacy handle, which names the exporter's process and descriptor, shareable memory by the
// descriptor itself.
#pragma once

#include <map>
#include <mutex>
#include <variant>

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
  enum class Origin : std::uint8_t { allocated, pinned, registered, imported };
  struct Block {
    Allocation facts;
    Origin origin = Origin::allocated;
    MemoryKind kind = MemoryKind::plain;
    Mapping mapping;  ///< None for registered memory.
    Fd descriptor;    ///< Of allocated memory.
  };

  void* insert(Block block);
  Status erase(void* base, Origin origin, const char* what);
  Block* find(const void* pointer);  ///< Under the lock.

  std::mutex mutex_;
  std::map<std::byte*, Block> blocks_;  ///< By base.
  std::uint64_t last_generation_ = 0;
};

}  // namespace lockstep::internal
