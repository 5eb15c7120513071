// Memory that every transport uses without copying.
#pragma once

#include <cstddef>

#include "lockstep/export.hpp"

namespace lockstep {

/// Allocates `bytes` (> 0) of page-aligned, zeroed, populated memory that ranks on this host can map (memfd;
/// a block holds one file descriptor, so allocate few and large ones). The call is local: no other rank takes
/// part. Throws Error(out_of_memory) where there is no memory or room for one more mapping, Error(system)
/// where no file descriptor is left (`ulimit -n`), Error(invalid_argument) for 0 bytes. More than the machine
/// has is refused so; what others use of it the kernel finds out as it populates, and may end a process for.
/// Thread-safe.
///
/// The memory is shared with children that are forked later, not copied on write: what a child writes there
/// its parent reads.
///
/// A call that fails while a rank of this host does not answer (stopped, in a debugger) takes the pages of
/// its output from that rank: they become private to this process, contents kept, and their block, until it
/// is freed, is no longer registered memory. Calls on it are right, and slower. Those under way on the same
/// pages fail.
[[nodiscard]] LOCKSTEP_API void* allocate(std::size_t bytes);

/// Frees memory of allocate(); nullptr is ignored, any other pointer ends the process as the C library's free
/// does. No operation may be using it. Up to 64 MiB of freed blocks are kept for allocations of the same size
/// (first touch of fresh pages is slow); a larger block goes at once. In a child forked after the allocation
/// it does nothing. Thread-safe.
LOCKSTEP_API void free(void* pointer) noexcept;

/// True when [pointer, pointer + bytes) lies in one block of allocate() or one registered buffer, as long as
/// no failure has made pages of it private. Thread-safe.
LOCKSTEP_API bool is_registered(const void* pointer, std::size_t bytes) noexcept;

/// Registers foreign memory [pointer, pointer + bytes). Both must be multiples of the page size, and the
/// range must be private anonymous or heap memory: its contents are moved to a memfd mapped over the same
/// addresses (the bytes do not change; no other thread may touch the range during the call). Throws
/// Error(invalid_argument) when it is not so, else as allocate; the buffer is then as it was. Thread-safe.
///
/// From then on children that are forked share it, as they do memory of allocate(). Memory that another
/// library has pinned (cudaHostRegister, ibv_reg_mr) must not be registered: its device would go on with the
/// old pages. Pin it afterwards, and unpin it before deregister_buffer.
LOCKSTEP_API void register_buffer(void* pointer, std::size_t bytes);

/// Undoes register_buffer, which must come before the range is freed or unmapped: the range becomes private
/// memory again, contents kept, for which there must be memory and a mapping: throws Error(out_of_memory)
/// else, and the buffer stays registered. Throws Error(invalid_argument) when `pointer` is not the start of a
/// registered buffer. No operation may be using it. Thread-safe.
LOCKSTEP_API void deregister_buffer(void* pointer);

}  // namespace lockstep
