#include "lib/device/cuda/cuda_memory.hpp"

#include <cuda_runtime_api.h>

#include <cstring>

#include "lib/reduce/cuda/cuda_errors.hpp"

namespace lockstep::internal {
namespace {

constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

CUmemAllocationProp properties_of(int device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  properties.requestedHandleTypes = kDescriptor;
  return properties;
}

CUdeviceptr address(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

std::string amount(std::size_t bytes) { return std::to_string(bytes) + " bytes of device memory"; }

}  // namespace

/// What the driver knows of a pointer.
struct CudaMemory::Facts {
  unsigned type = 0;  ///< CUmemorytype, 0: unknown to CUDA.
  int device = -1;
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  bool mapped = false;  ///< Of virtual memory management: base and bytes are of one mapping.
  unsigned long long buffer = 0;
  bool managed = false;
  bool legacy = false;             ///< A legacy handle can be made.
  unsigned long long handles = 0;  ///< CUmemAllocationHandleType that can be made.
};

Result<CudaMemory::Facts> CudaMemory::facts_of(const void* pointer) const {
  Facts facts;
  // The driver writes four bytes for a yes or no.
  unsigned managed = 0, legacy = 0;
  // All that are in the list of what may be asked for at once.
  CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                 CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                 CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                 CU_POINTER_ATTRIBUTE_BUFFER_ID,
                                 CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                 CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES};
  void* values[] = {&facts.type,   &facts.device, &facts.base, &facts.bytes,
                    &facts.buffer, &managed,      &legacy,     &facts.handles};
  const CUresult result = driver_.pointer_attributes(std::size(names), names, values, address(pointer));
  LOCKSTEP_RETURN_IF_ERROR(driver_status(driver_, result, "asking the driver about a pointer"));
  facts.managed = managed != 0;
  facts.legacy = legacy != 0;
  if (facts.type != CU_MEMORYTYPE_DEVICE || facts.managed || facts.legacy) return facts;
  // The range of a reservation may be longer than what is mapped there, and hold several mappings.
  const CUdeviceptr range = facts.base;
  const std::size_t range_bytes = facts.bytes;
  if (driver_.address_range(&facts.base, &facts.bytes, address(pointer)) != CUDA_SUCCESS) {
    facts.base = range;
    facts.bytes = range_bytes;
  }
  facts.mapped = facts.base != range || facts.bytes != range_bytes;
  return facts;
}

/// Of what cudaMalloc gave: it may be cut from a block of the driver's own, where others lie too. Whether
/// the driver tells of that block is written nowhere.
bool CudaMemory::fills_blocks(const Facts& facts) const {
  CUdeviceptr block = 0;
  std::size_t block_bytes = 0;
  const auto ask = [&](CUpointer_attribute what, void* where) {
    return driver_.pointer_attribute(where, what, facts.base) == CUDA_SUCCESS;
  };
  const bool told = ask(CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, &block) &&
                    ask(CU_POINTER_ATTRIBUTE_MAPPING_SIZE, &block_bytes) && block_bytes != 0;
  return fills_legacy_blocks(facts.base, facts.bytes, told ? block : 0, block_bytes);
}

Result<void*> CudaMemory::allocate(int device, std::size_t bytes, MemoryKind kind) {
  if (bytes == 0) return Status(ErrorCode::invalid_argument, "an allocation needs at least one byte");
  if (kind == MemoryKind::shareable) return create(device, bytes);
  void* memory = nullptr;
  if (kind == MemoryKind::plain) {
    LOCKSTEP_RETURN_IF_ERROR(cuda_status(::cudaMalloc(&memory, bytes), amount(bytes)));
    return memory;
  }
  LOCKSTEP_RETURN_IF_ERROR(cuda_status(::cudaMallocAsync(&memory, bytes, nullptr), amount(bytes)));
  LOCKSTEP_RETURN_IF_ERROR(cuda_status(::cudaStreamSynchronize(nullptr), amount(bytes)));
  return memory;
}

Status CudaMemory::free(void* memory) {
  Block block{};
  if (!take(memory, false, block)) return cuda_status(::cudaFree(memory), "freeing device memory");
  // What cudaFree does: whatever uses the memory ends first.
  LOCKSTEP_RETURN_IF_ERROR(cuda_status(::cudaDeviceSynchronize(), "freeing device memory"));
  return unmap(memory, block);
}

Result<void*> CudaMemory::create(int device, std::size_t bytes) {
  const CUmemAllocationProp properties = properties_of(device);
  std::size_t granularity = 0;
  LOCKSTEP_RETURN_IF_ERROR(driver_status(
      driver_, driver_.granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
      "asking for the granularity of device memory"));
  const std::size_t whole = (bytes + granularity - 1) / granularity * granularity;
  CUmemGenericAllocationHandle handle = 0;
  LOCKSTEP_RETURN_IF_ERROR(
      driver_status(driver_, driver_.create(&handle, whole, &properties, 0), amount(whole)));
  return map(device, handle, whole, Origin::created);
}

Result<void*> CudaMemory::map(int device, CUmemGenericAllocationHandle handle, std::size_t bytes,
                              Origin origin) {
  const std::string what = "mapping " + amount(bytes);
  CUdeviceptr base = 0;
  Status status = driver_status(driver_, driver_.reserve(&base, bytes, 0, 0, 0), what);
  if (!status.ok()) {
    static_cast<void>(driver_.release(handle));
    return status;
  }
  const Block block{origin, device, bytes, handle};
  status = driver_status(driver_, driver_.map(base, bytes, 0, handle, 0), what);
  if (!status.ok()) {
    static_cast<void>(driver_.unreserve(base, bytes));
    static_cast<void>(driver_.release(handle));
    return status;
  }
  auto* const memory = reinterpret_cast<void*>(base);
  const std::lock_guard lock(mutex_);
  status = set_access(base, block, device);
  for (const auto& [reader, owner] : reaches_) {
    if (status.ok() && owner == device && origin == Origin::created) status = set_access(base, block, reader);
  }
  if (!status.ok()) {
    static_cast<void>(unmap(memory, block));
    return status;
  }
  blocks_.emplace(memory, block);
  return memory;
}

Status CudaMemory::set_access(CUdeviceptr base, const Block& block, int device) const {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = device;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return driver_status(
      driver_, driver_.set_access(base, block.bytes, &access, 1),
      "access of device " + std::to_string(device) + " to memory of device " + std::to_string(block.device));
}

Status CudaMemory::let_reach(int device, int owner) {
  const std::lock_guard lock(mutex_);
  if (!reaches_.emplace(device, owner).second) return {};
  for (const auto& [base, block] : blocks_) {
    if (block.origin == Origin::created && block.device == owner)
      LOCKSTEP_RETURN_IF_ERROR(set_access(address(base), block, device));
  }
  return {};
}

Status CudaMemory::unmap(void* base, const Block& block) {
  const char* const what = "unmapping device memory";
  const CUdeviceptr at = address(base);
  LOCKSTEP_RETURN_IF_ERROR(driver_status(driver_, driver_.unmap(at, block.bytes), what));
  LOCKSTEP_RETURN_IF_ERROR(driver_status(driver_, driver_.unreserve(at, block.bytes), what));
  return driver_status(driver_, driver_.release(block.handle), what);
}

Result<Allocation> CudaMemory::locate(const void* pointer) const {
  const Result<Facts> found = facts_of(pointer);
  if (!found.ok()) return found.status();
  const Facts& facts = found.value();
  Allocation allocation;
  if (facts.type == 0) return allocation;
  allocation.space = facts.managed                      ? MemorySpace::managed
                     : facts.type == CU_MEMORYTYPE_HOST ? MemorySpace::pinned
                                                        : MemorySpace::device;
  allocation.device = allocation.space == MemorySpace::device ? facts.device : -1;
  allocation.base = reinterpret_cast<std::byte*>(facts.base);
  allocation.bytes = facts.bytes;
  allocation.generation = facts.buffer;
  allocation.is_part = facts.mapped;
  return allocation;
}

Result<MemoryExport> CudaMemory::export_memory(const void* memory) const {
  const Result<Facts> found = facts_of(memory);
  if (!found.ok()) return found.status();
  const Facts& facts = found.value();
  if (facts.type != CU_MEMORYTYPE_DEVICE || facts.managed) {
    return Status(ErrorCode::not_supported, "only device memory can be exported, not host or managed memory");
  }
  MemoryExport exported;
  exported.bytes = facts.bytes;
  auto* const base = reinterpret_cast<void*>(facts.base);
  // Whole blocks are safe by CUDA's guide, whatever the driver tells of what it cut them from.
  const bool whole = facts.bytes % kLegacyBlock == 0;
  if (facts.legacy && (whole || fills_blocks(facts))) {
    cudaIpcMemHandle_t handle;
    LOCKSTEP_RETURN_IF_ERROR(cuda_status(::cudaIpcGetMemHandle(&handle, base), "exporting device memory"));
    static_assert(sizeof handle == kLegacyHandleBytes);
    std::memcpy(exported.legacy.data(), &handle, sizeof handle);
    exported.has_legacy = true;
  }
  // What cudaMalloc has cut from a block would be exported in a size that is none of a mapping.
  if (!facts.legacy && (facts.handles & kDescriptor) != 0) {
    CUmemGenericAllocationHandle handle = 0;
    int descriptor = -1;
    if (driver_.retain(&handle, base) == CUDA_SUCCESS) {  // Memory of a pool has no handle of its own.
      const CUresult result = driver_.export_handle(&descriptor, handle, kDescriptor, 0);
      static_cast<void>(driver_.release(handle));
      LOCKSTEP_RETURN_IF_ERROR(driver_status(driver_, result, "exporting device memory"));
      exported.descriptor = Fd(descriptor);
    }
  }
  if (!exported.has_legacy && !exported.descriptor) {
    return Status(
        ErrorCode::not_supported,
        "this device memory cannot be exported: it was imported, is of a pool (cudaMallocAsync), shares a "
        "block of 2 MiB with other allocations, or was created without a shareable handle");
  }
  return exported;
}

Result<void*> CudaMemory::import_memory(int device, const MemoryExport& memory) {
  if (memory.descriptor) {
    CUmemGenericAllocationHandle handle = 0;
    // The interface takes the descriptor's number as a pointer.
    auto* const number = reinterpret_cast<void*>(static_cast<std::intptr_t>(memory.descriptor.get()));
    LOCKSTEP_RETURN_IF_ERROR(driver_status(driver_, driver_.import_handle(&handle, number, kDescriptor),
                                           "importing device memory by its descriptor"));
    return map(device, handle, memory.bytes, Origin::imported);
  }
  if (!memory.has_legacy) {
    return Status(ErrorCode::not_supported, "the exporter offers no form of its memory that can be imported");
  }
  cudaIpcMemHandle_t handle;
  std::memcpy(&handle, memory.legacy.data(), sizeof handle);
  void* base = nullptr;
  LOCKSTEP_RETURN_IF_ERROR(
      cuda_status(::cudaIpcOpenMemHandle(&base, handle, cudaIpcMemLazyEnablePeerAccess),
                  "opening device memory of another process (both need one view of process ids, such as one "
                  "container or --pid=host)"));
  const std::lock_guard lock(mutex_);
  const auto [at, is_new] = blocks_.try_emplace(base, Block{Origin::opened, device, memory.bytes, 0});
  if (!is_new) ++at->second.opens;
  return base;
}

Status CudaMemory::close_imported(void* base) {
  Block block{};
  if (!take(base, true, block)) {
    return Status(ErrorCode::invalid_argument, "this address did not come from import_memory()");
  }
  if (block.origin == Origin::imported) return unmap(base, block);
  return cuda_status(::cudaIpcCloseMemHandle(base), "closing device memory of another process");
}

bool CudaMemory::take(void* base, bool imported, Block& block) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(base);
  if (found == blocks_.end() || (found->second.origin != Origin::created) != imported) return false;
  block = found->second;
  if (--found->second.opens == 0) blocks_.erase(found);
  return true;
}

}  // namespace lockstep::internal
