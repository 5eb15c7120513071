// Memory of the CUDA backend: what it allocated by virtual memory management or imported, and the facts of
// any pointer.
#pragma once

#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "lib/device/backend.hpp"
#include "lib/device/cuda/cuda_driver.hpp"

namespace lockstep::internal {

class CudaMemory {
 public:
  explicit CudaMemory(const CudaDriver& driver) : driver_(driver) {}

  /// Of the selected device, whose number is `device`.
  Result<void*> allocate(int device, std::size_t bytes, MemoryKind kind);
  /// Its device is selected.
  Status free(void* memory);
  Result<Allocation> locate(const void* pointer) const;
  Result<MemoryExport> export_memory(const void* memory) const;
  Result<void*> import_memory(int device, const MemoryExport& memory);
  Status close_imported(void* base);
  /// Peer access, which memory of virtual memory management does not have by itself: what create() made on
  /// `owner`, and makes from now on, `device` reaches too.
  Status let_reach(int device, int owner);

 private:
  enum class Origin : std::uint8_t { created, imported, opened };
  /// A handle of memory mapped at an address range of its own; `opened` legacy handles have no more than a
  /// base.
  struct Block {
    Origin origin;
    int device = -1;
    std::size_t bytes = 0;
    CUmemGenericAllocationHandle handle = 0;
    int opens = 1;  ///< A legacy handle that is opened again gives the same base, to be closed as often.
  };
  struct Facts;

  Result<Facts> facts_of(const void* pointer) const;
  bool fills_blocks(const Facts& facts) const;
  Result<void*> create(int device, std::size_t bytes);
  /// Maps `handle`, of which it becomes the owner, also when it fails.
  Result<void*> map(int device, CUmemGenericAllocationHandle handle, std::size_t bytes, Origin origin);
  Status set_access(CUdeviceptr base, const Block& block, int device) const;
  Status unmap(void* base, const Block& block);
  /// Gives the block at `base`, and removes it from the list when it was opened no more often than taken;
  /// false when there is none of this kind.
  bool take(void* base, bool imported, Block& block);

  const CudaDriver& driver_;
  std::mutex mutex_;
  std::map<void*, Block> blocks_;
  std::set<std::pair<int, int>> reaches_;  ///< Devices, and the owners whose memory they reach.
};

}  // namespace lockstep::internal
