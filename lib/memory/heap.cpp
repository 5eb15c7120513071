#include "lib/memory/heap.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "lib/memory/descriptor_service.hpp"
#include "lib/memory/limits.hpp"
#include "lib/memory/mapping.hpp"
#include "lib/memory/private_memory.hpp"
#include "lib/memory/segment.hpp"

namespace lockstep::internal {
namespace {

std::uintptr_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

void offer_segment(std::uint64_t segment, Fd fd) {
  std::vector<Fd> descriptors;
  descriptors.push_back(std::move(fd));
  // The key is fresh: numbers are used once.
  [[maybe_unused]] const Status status = offer_descriptors(segment_key(segment), std::move(descriptors));
  assert(status.ok());
}

// Moves [data, data + bytes) to new shared memory over the same addresses and returns its descriptor.
Result<Fd> move_to_shared(std::byte* data, std::size_t bytes) {
  auto fd = make_memory_fd("lockstep-buffer", bytes);
  if (!fd.ok()) return fd.status();
  auto mapping = Mapping::map(*fd, bytes);
  if (!mapping.ok()) return mapping.status();
  std::memcpy(mapping->data(), data, bytes);
  const Status moved = mapping->move_over(data);
  if (moved.ok()) return fd;
  std::memcpy(data, mapping->data(), bytes);
  return moved;
}

// Offers the segment no longer and gives its pages back now: peers may keep the descriptor mapped for as long
// as they live.
void drop_segment(std::uint64_t segment, std::size_t bytes) {
  for (const Fd& fd : withdraw_descriptors(segment_key(segment)))
    ::fallocate(fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes));
}

}  // namespace

Heap& Heap::instance() {
  static Heap* heap = new Heap;
  return *heap;
}

SegmentPlace Heap::place_of(const Block& block) {
  const std::uintptr_t begin = address_of(block.data);
  return {begin, begin + block.bytes, block.segment};
}

std::optional<SegmentPlace> Heap::place_of(std::uint64_t segment) {
  std::lock_guard lock(mutex_);
  for (const auto& [begin, block] : blocks_) {
    if (block.segment == segment) return place_of(block);
  }
  return std::nullopt;
}

void Heap::enter(const Block& block) {
  blocks_[address_of(block.data)] = block;
  table_.insert(place_of(block));
}

// Outside the lock: touching fresh pages takes long.
Result<Heap::Block> Heap::make_block(std::size_t bytes) {
  auto fd = make_memory_fd("lockstep-memory", bytes);
  if (!fd.ok()) return fd.status();
  auto mapping = Mapping::map(*fd, bytes);
  if (!mapping.ok()) return mapping.status();
  std::unique_lock lock(mutex_);
  Block block{nullptr, bytes, ++last_segment_, false};
  lock.unlock();
  offer_segment(block.segment, std::move(*fd));
  block.data = mapping->release();
  return block;
}

// A kept block of just this size, or one without memory.
Heap::Block Heap::take_kept(std::size_t bytes) {
  std::lock_guard lock(mutex_);
  // The youngest first: most of it may still be in the cache.
  for (auto at = kept_.rbegin(); at != kept_.rend(); ++at) {
    if (at->bytes != bytes) continue;
    const Block block = *at;
    kept_bytes_ -= block.bytes;
    kept_.erase(std::next(at).base());
    return block;
  }
  return Block{};
}

Result<std::byte*> Heap::allocate(std::size_t bytes) {
  if (in_forked_child()) return forked_child_error();
  if (bytes == 0) return Status(ErrorCode::invalid_argument, "0 bytes were asked for: allocate at least 1");
  const std::size_t whole_pages = round_up_to_pages(bytes);
  if (whole_pages < bytes || whole_pages > PTRDIFF_MAX)
    return Status(ErrorCode::out_of_memory, "no process has " + std::to_string(bytes) + " bytes");
  Block block = take_kept(whole_pages);
  if (block.data != nullptr) {
    std::memset(block.data, 0, block.bytes);
  } else {
    auto made = make_block(whole_pages);
    if (made.status().code() == ErrorCode::out_of_memory && release_kept()) made = make_block(whole_pages);
    if (!made.ok()) return made.status();
    block = *made;
  }
  std::lock_guard lock(mutex_);
  enter(block);
  return block.data;
}

void Heap::release(const Block& block) {
  drop_segment(block.segment, block.bytes);
  ::munmap(block.data, block.bytes);
}

// Under the lock. Evicts the oldest until what is kept is within bounds; what never could be pushes nobody
// out.
void Heap::keep(const Block& block) {
  if (block.bytes > kReuseBytes) return release(block);
  kept_.push_back(block);
  kept_bytes_ += block.bytes;
  while (kept_bytes_ > kReuseBytes) {
    const Block oldest = kept_.front();
    kept_.pop_front();
    kept_bytes_ -= oldest.bytes;
    release(oldest);
  }
}

// Whether there was any: what another size lies in now may be what a new one needs.
bool Heap::release_kept() {
  std::lock_guard lock(mutex_);
  return release_kept_locked();
}

bool Heap::release_kept_locked() {
  const bool any = !kept_.empty();
  for (const Block& block : kept_) release(block);
  kept_.clear();
  kept_bytes_ = 0;
  return any;
}

void Heap::free(void* pointer) noexcept {
  // A child shares these pages with its parent; they go with the process.
  if (pointer == nullptr || in_forked_child()) return;
  std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address_of(pointer));
  if (found == blocks_.end() || found->second.adopted) {
    std::fprintf(
        stderr,
        "lockstep::free(%p): not a live block of lockstep::allocate (freed twice, or never allocated here)\n",
        pointer);
    std::abort();
  }
  const Block block = found->second;
  blocks_.erase(found);
  table_.erase(address_of(pointer));
  forget_private(block) ? release(block) : keep(block);
}

// The live block that holds `pointer`, or nullptr. Under the lock.
Heap::Block* Heap::block_of(const void* pointer) {
  auto above = blocks_.upper_bound(address_of(pointer));
  if (above == blocks_.begin()) return nullptr;
  Block& block = std::prev(above)->second;
  return address_of(pointer) - address_of(block.data) < block.bytes ? &block : nullptr;
}

// Under the lock.
Status Heap::check_adoptable(std::uintptr_t begin, std::size_t bytes) const {
  if (begin == 0 || bytes == 0) return Status(ErrorCode::invalid_argument, "the buffer is null or empty");
  if (bytes > PTRDIFF_MAX || begin + bytes < begin)
    return Status(ErrorCode::invalid_argument, "no process has " + std::to_string(bytes) + " bytes there");
  if (begin % page_size() != 0 || bytes % page_size() != 0) {
    return Status(ErrorCode::invalid_argument, "address and size must be multiples of the page size (" +
                                                   std::to_string(page_size()) +
                                                   "): use aligned_alloc, or lockstep::allocate");
  }
  const auto above = blocks_.lower_bound(begin + bytes);
  if (above != blocks_.begin() &&
      address_of(std::prev(above)->second.data) + std::prev(above)->second.bytes > begin) {
    return Status(ErrorCode::invalid_argument,
                  "a part of the buffer is registered already: deregister that first");
  }
  return check_private_anonymous(begin, bytes);
}

Status Heap::adopt(void* pointer, std::size_t bytes) {
  if (in_forked_child()) return forked_child_error();
  std::lock_guard lock(mutex_);
  LOCKSTEP_RETURN_IF_ERROR(check_adoptable(address_of(pointer), bytes));
  Block block{static_cast<std::byte*>(pointer), bytes, last_segment_ + 1, true};
  auto fd = move_to_shared(block.data, block.bytes);
  if (fd.status().code() == ErrorCode::out_of_memory && release_kept_locked())
    fd = move_to_shared(block.data, block.bytes);
  if (!fd.ok()) return fd.status();
  ++last_segment_;
  offer_segment(block.segment, std::move(*fd));
  enter(block);
  return Status();
}

Status Heap::give_back(void* pointer) {
  if (in_forked_child()) return forked_child_error();
  std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address_of(pointer));
  if (found == blocks_.end() || !found->second.adopted) {
    return Status(ErrorCode::invalid_argument, "the pointer is not the start of a registered buffer");
  }
  const Block block = found->second;
  auto mapping = Mapping::map_private(block.bytes);
  if (!mapping.ok()) return mapping.status();
  std::memcpy(mapping->data(), block.data, block.bytes);
  if (Status moved = mapping->move_over(block.data); !moved.ok()) {
    std::memcpy(block.data, mapping->data(), block.bytes);  // Of it pages may have been private.
    return moved;
  }
  drop_segment(block.segment, block.bytes);  // Not before: this was the only copy.
  blocks_.erase(found);
  table_.erase(address_of(pointer));
  forget_private(block);
  return Status();
}

// Under the lock. Whether there were such pages.
bool Heap::forget_private(const Block& block) {
  const auto first = private_.lower_bound(address_of(block.data));
  const auto last = private_.lower_bound(address_of(block.data) + block.bytes);
  const bool any = first != last;
  private_.erase(first, last);
  return any;
}

bool Heap::is_private(const void* pointer, std::size_t bytes) {
  std::lock_guard lock(mutex_);
  return is_private_locked(pointer, bytes);
}

bool Heap::is_private_locked(const void* pointer, std::size_t bytes) const {
  const auto above = private_.lower_bound(address_of(pointer) + bytes);
  return above != private_.begin() && std::prev(above)->second > address_of(pointer);
}

// Under the lock; whole pages that are shared. The mapping is exchanged in one step, and each page is copied
// by the kernel between two writes of this process's threads to it, so none of those is lost.
Status Heap::take_pages(const Block& block, std::uintptr_t begin, std::uintptr_t end) {
  auto fd = duplicate_offered(segment_key(block.segment));
  if (!fd.ok()) return fd.status();
  const std::uintptr_t offset = begin - address_of(block.data);
  auto copy = Mapping::map_copy(*fd, offset, end - begin);
  if (!copy.ok()) return copy.status();
  // Before: who looks whether its pages are its peers' still must not find them so afterwards.
  private_[begin] = end;
  private_pages_exist.store(true, std::memory_order_seq_cst);
  table_.erase(address_of(block.data));
  if (Status status = copy->move_over(block.data + offset); !status.ok()) {
    private_.erase(begin);
    if (!is_private_locked(block.data, block.bytes)) enter(Block(block));
    return status;
  }
  return populate(block.data + offset, end - begin);
}

Status Heap::make_private(const void* pointer, std::size_t bytes) try {
  if (in_forked_child()) return forked_child_error();
  std::lock_guard lock(mutex_);
  const Block* block = block_of(pointer);
  if (block == nullptr || bytes > block->bytes - (address_of(pointer) - address_of(block->data)))
    return Status(ErrorCode::invalid_argument, "the memory to take from peers is not registered");
  std::uintptr_t at = address_of(pointer) / page_size() * page_size();
  const std::uintptr_t end = round_up_to_pages(address_of(pointer) + bytes);
  while (at < end) {  // Those that are private already hold what the shared ones do not.
    const auto above = private_.upper_bound(at);
    if (above != private_.begin() && std::prev(above)->second > at) {
      at = std::prev(above)->second;
      continue;
    }
    const std::uintptr_t stop = above == private_.end() ? end : std::min(end, above->first);
    LOCKSTEP_RETURN_IF_ERROR(take_pages(*block, at, stop));
    at = stop;
  }
  return Status();
} catch (const std::bad_alloc&) {
  return Status(ErrorCode::out_of_memory, "no memory to note which pages are private");
}

}  // namespace lockstep::internal
