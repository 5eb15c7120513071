#include "lib/device/host/host_memory.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace lockstep::internal {
namespace {

constexpr std::uint64_t kHandleMagic = 0x6c732d686f737432;  // "ls-host2"
constexpr std::size_t kCutUnit = 512;                       // Of CUDA too.

}  // namespace

Result<LegacyHandle> HostMemory::make_handle(const Block& block) {
  struct stat facts {};
  if (::fstat(block.descriptor.get(), &facts) != 0) return system_error("fstat of device memory", errno);
  HandleText text;
  text.magic = kHandleMagic;
  text.pid = ::getpid();
  text.descriptor = block.descriptor.get();
  text.filesystem = facts.st_dev;
  text.inode = facts.st_ino;
  text.base = reinterpret_cast<std::uintptr_t>(block.facts.base);
  text.bytes = block.facts.bytes;
  LegacyHandle handle{};
  std::memcpy(handle.data(), &text, sizeof text);
  return handle;
}

Result<HostMemory::HandleText> HostMemory::read_handle(const LegacyHandle& handle) {
  HandleText text;
  std::memcpy(&text, handle.data(), sizeof text);
  if (text.magic == kHandleMagic) return text;
  return Status(ErrorCode::invalid_argument, "not a memory handle of the host backend");
}

Result<Fd> HostMemory::open_handle(const HandleText& text) {
  const std::string pid = std::to_string(text.pid);
  const std::string path = "/proc/" + pid + "/fd/" + std::to_string(text.descriptor);
  Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd) return system_error("device memory of process " + pid + " (" + path + ")", errno);
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0) return system_error("fstat of " + path, errno);
  if (facts.st_dev != text.filesystem || facts.st_ino != text.inode) {
    return Status(ErrorCode::invalid_argument, "process " + pid + " has freed the memory of this handle");
  }
  return fd;
}

/// As cudaErrorAlreadyMapped; one handle may be opened again.
Status HostMemory::check_overlap(int device, const HandleText& text) {
  const std::lock_guard lock(mutex_);
  for (const auto& [base, block] : blocks_) {
    const HandleText& open = block.handle;
    if (open.magic != kHandleMagic || open.pid != text.pid || block.facts.device != device) continue;
    if (open.inode == text.inode || open.base >= text.base + text.bytes ||
        text.base >= open.base + open.bytes)
      continue;
    return Status(ErrorCode::device_failed, "memory of another process at these addresses is open already");
  }
  return {};
}

Result<void*> HostMemory::allocate(int device, std::size_t bytes, MemoryKind kind) {
  if (bytes == 0) return Status(ErrorCode::invalid_argument, "an allocation needs at least one byte");
  if (kind == MemoryKind::plain && bytes < kLegacyBlock) return cut(device, bytes);
  Result<Fd> descriptor = make_memory_fd("lockstep-device", round_up_to_pages(bytes));
  if (!descriptor.ok()) return descriptor.status();
  Result<Mapping> mapping = Mapping::map(*descriptor, Mapping::kAll, 0);
  if (!mapping.ok()) return mapping.status();
  Block block;
  block.facts = {MemorySpace::device, device, mapping->data(), bytes, 0};
  block.kind = kind;
  block.mapping = std::move(*mapping);
  block.descriptor = std::move(*descriptor);
  return insert(std::move(block));
}

Result<void*> HostMemory::cut(int device, std::size_t bytes) {
  const std::size_t whole = (bytes + kCutUnit - 1) / kCutUnit * kCutUnit;
  Block block;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<CutBlock>& from = cut_blocks_[device];
    if (from != nullptr && from.use_count() == 1) from->used = 0;  // All were freed.
    if (from == nullptr || kLegacyBlock - from->used < whole) {
      Result<Fd> descriptor = make_memory_fd("lockstep-device", kLegacyBlock);
      if (!descriptor.ok()) return descriptor.status();
      Result<Mapping> mapping = Mapping::map(*descriptor, Mapping::kAll, 0);
      if (!mapping.ok()) return mapping.status();
      from = std::make_shared<CutBlock>(CutBlock{std::move(*mapping), 0});
    }
    block.facts = {MemorySpace::device, device, from->mapping.data() + from->used, bytes, 0};
    from->used += whole;
    block.cut_from = from;
  }
  return insert(std::move(block));
}

Result<void*> HostMemory::allocate_pieces(int device, std::size_t piece_bytes, int pieces) {
  Result<Mapping> range = Mapping::map_private(static_cast<std::size_t>(pieces + 1) * piece_bytes);
  if (!range.ok()) return range.status();
  std::byte* const base = range->data();
  for (int i = 0; i < pieces; ++i) {
    std::byte* const place = base + static_cast<std::size_t>(i) * piece_bytes;
    Result<Fd> descriptor = make_memory_fd("lockstep-device", piece_bytes);
    if (!descriptor.ok()) return descriptor.status();
    Result<Mapping> piece = Mapping::map(*descriptor, Mapping::kAll, 0);
    if (!piece.ok()) return piece.status();
    LOCKSTEP_RETURN_IF_ERROR(piece->move_over(place));
    Block block;
    block.facts = {MemorySpace::device, device, place, piece_bytes, 0, true};
    block.kind = MemoryKind::shareable;
    if (i == 0) block.mapping = std::move(*range);
    block.descriptor = std::move(*descriptor);
    static_cast<void>(insert(std::move(block)));
  }
  return base;
}

Status HostMemory::free(void* memory) { return erase(memory, Origin::allocated, "allocate()"); }

Result<void*> HostMemory::allocate_pinned(std::size_t bytes) {
  Result<Mapping> mapping = Mapping::map_private(round_up_to_pages(bytes == 0 ? 1 : bytes));
  if (!mapping.ok()) return mapping.status();
  Block block;
  block.facts = {MemorySpace::pinned, -1, mapping->data(), bytes, 0};
  block.origin = Origin::pinned;
  block.mapping = std::move(*mapping);
  return insert(std::move(block));
}

Status HostMemory::free_pinned(void* memory) { return erase(memory, Origin::pinned, "allocate_pinned()"); }

Result<void*> HostMemory::register_host(void* memory, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(memory) % page_size() != 0 || bytes == 0) {
    return Status(ErrorCode::invalid_argument, "only whole pages of host memory can be registered");
  }
  Block block;
  block.facts = {MemorySpace::pinned, -1, static_cast<std::byte*>(memory), bytes, 0};
  block.origin = Origin::registered;
  {
    const std::lock_guard lock(mutex_);
    if (find(memory) != nullptr) {
      return Status(ErrorCode::invalid_argument, "this host memory is registered already");
    }
  }
  return insert(std::move(block));
}

Status HostMemory::unregister_host(void* memory) {
  return erase(memory, Origin::registered, "register_host()");
}

Allocation HostMemory::locate(const void* pointer) {
  const std::lock_guard lock(mutex_);
  const Block* block = find(pointer);
  return block == nullptr ? Allocation{} : block->facts;
}

Result<MemoryExport> HostMemory::export_memory(const void* memory) {
  const std::lock_guard lock(mutex_);
  const Block* block = find(memory);
  if (block == nullptr || block->facts.space != MemorySpace::device) {
    return Status(ErrorCode::invalid_argument, "not device memory: only device memory can be exported");
  }
  if (block->origin != Origin::allocated || block->kind == MemoryKind::pool) {
    return Status(ErrorCode::not_supported,
                  "this memory cannot be exported: it was imported, or is of a pool");
  }
  if (block->cut_from != nullptr) {
    return Status(ErrorCode::not_supported, "this memory cannot be exported: it shares a block of 2 MiB");
  }
  MemoryExport exported;
  exported.bytes = block->facts.bytes;
  if (block->kind == MemoryKind::shareable) {
    exported.descriptor = Fd(::fcntl(block->descriptor.get(), F_DUPFD_CLOEXEC, 0));
    if (!exported.descriptor) return system_error("duplicating a memory descriptor", errno);
    return exported;
  }
  Result<LegacyHandle> handle = make_handle(*block);
  if (!handle.ok()) return handle.status();
  exported.has_legacy = true;
  exported.legacy = *handle;
  return exported;
}

Result<void*> HostMemory::import_memory(int device, const MemoryExport& memory) {
  Fd opened;
  HandleText text;
  if (!memory.descriptor) {
    if (!memory.has_legacy) {
      return Status(ErrorCode::not_supported,
                    "the exporter offers no form of its memory that can be imported");
    }
    const Result<HandleText> read = read_handle(memory.legacy);
    if (!read.ok()) return read.status();
    text = read.value();
    Result<Fd> fd = open_handle(text);
    if (!fd.ok()) return fd.status();
    LOCKSTEP_RETURN_IF_ERROR(check_overlap(device, text));
    opened = std::move(*fd);
  }
  const Fd& descriptor = memory.descriptor ? memory.descriptor : opened;
  Result<Mapping> mapping = Mapping::map(descriptor, round_up_to_pages(memory.bytes), 0);
  if (!mapping.ok()) return mapping.status();
  Block block;
  block.facts = {MemorySpace::device, device, mapping->data(), memory.bytes, 0};
  block.origin = Origin::imported;
  block.handle = text;
  block.mapping = std::move(*mapping);
  return insert(std::move(block));
}

Status HostMemory::close_imported(void* base) { return erase(base, Origin::imported, "import_memory()"); }

void* HostMemory::insert(Block block) {
  const std::lock_guard lock(mutex_);
  block.facts.generation = ++last_generation_;
  std::byte* const base = block.facts.base;
  blocks_.emplace(base, std::move(block));
  return base;
}

Status HostMemory::erase(void* base, Origin origin, const char* what) {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(static_cast<std::byte*>(base));
  if (found == blocks_.end() || found->second.origin != origin) {
    return Status(ErrorCode::invalid_argument, std::string("this address did not come from ") + what);
  }
  blocks_.erase(found);
  return Status();
}

HostMemory::Block* HostMemory::find(const void* pointer) {
  const auto* const byte = static_cast<const std::byte*>(pointer);
  auto after = blocks_.upper_bound(const_cast<std::byte*>(byte));
  if (after == blocks_.begin()) return nullptr;
  Block& block = std::prev(after)->second;
  return byte < block.facts.base + block.facts.bytes ? &block : nullptr;
}

}  // namespace lockstep::internal
