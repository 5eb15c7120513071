#include "lib/memory/mapping.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "lib/base/control_group.hpp"

namespace lockstep::internal {
namespace {

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older C libraries lack the name.
#endif

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

/// For less nobody asks the control groups (cgroups), which takes 0.3 ms: none is so small that it could not
/// have it (Docker's least is 6 MiB), and what is left of a full one is soon found out by others.
constexpr std::size_t kLeastAsked = 4 << 20;

/// A huge page of x86-64, and of aarch64 with pages of 4 KiB.
constexpr std::size_t kHugePage = 2 << 20;

/// Fewer misses in the address cache, and a first touch of 2 MiB at once. A wish: shared memory has huge
/// pages only where an administrator allows them (/sys/kernel/mm/transparent_hugepage/shmem_enabled: advise).
void wish_for_huge_pages(void* data, std::size_t bytes) {
  if (bytes >= kHugePage) static_cast<void>(::madvise(data, bytes, MADV_HUGEPAGE));
}

// Where there is no MADV_POPULATE_WRITE. An atomic no-change write: the memory may be in use by its owner.
void touch(std::byte* data, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += page_size()) {
    std::atomic_ref<unsigned char>(reinterpret_cast<unsigned char&>(data[at]))
        .fetch_or(0, std::memory_order_relaxed);
  }
}

/// By a seccomp profile, which answers what it likes.
bool is_refusal(int error) { return error == EPERM || error == EACCES || error == ENOSYS; }

/// A file of /dev/shm would not do in its place: its size cannot be sealed.
Status refused_memory(int error) {
  if (!is_refusal(error)) return system_error("memfd_create", error);
  return Status(ErrorCode::system, std::string("this process may make no shared memory (memfd_create: ") +
                                       std::strerror(error) +
                                       "): let the container's seccomp profile allow memfd_create");
}

/// Whether the kernel would end processes by signals for so much.
Status check_room(std::size_t bytes) {
  const auto too_much = [bytes](const std::string& for_what) {
    return Status(ErrorCode::out_of_memory,
                  "shared memory of " + std::to_string(bytes) + " bytes is " + for_what);
  };
  rlimit most{};
  if (::getrlimit(RLIMIT_FSIZE, &most) == 0 && bytes > most.rlim_cur) {
    return too_much("larger than this process may make a file (" + std::to_string(most.rlim_cur) +
                    ": raise `ulimit -f`)");
  }
  // Pages come one by one, so it would find out only when there are no more.
  struct sysinfo machine {};
  if (::sysinfo(&machine) == 0 && bytes / machine.mem_unit > machine.totalram + machine.totalswap)
    return too_much("more than this machine has, swap included");
  if (bytes < kLeastAsked) return Status();
  const auto room = memory_room();
  if (!room || bytes <= room->bytes) return Status();
  return too_much("more than the control group " + room->group + " has left, swap included (" +
                  std::to_string(room->bytes) + " of " + std::to_string(room->limit) +
                  "): give this container or job more memory");
}

/// Kernels before Linux 5.14, and sandboxes that know of no such advice.
bool is_unknown_advice(int error) { return error == EINVAL || is_refusal(error); }

// The size of a memory descriptor that nobody can shrink.
Result<std::size_t> sealed_size(const Fd& fd) {
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0) return system_error("fstat of a memory descriptor", errno);
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return Status(ErrorCode::internal,
                  "a memory descriptor from a peer has no sealed size: it is not one of lockstep's");
  }
  return static_cast<std::size_t>(facts.st_size);
}

}  // namespace

std::size_t page_size() noexcept {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

std::size_t round_up_to_pages(std::size_t bytes) noexcept {
  return (bytes + page_size() - 1) / page_size() * page_size();
}

Result<Fd> make_memory_fd(const char* name, std::size_t bytes) {
  Fd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return refused_memory(errno);
  LOCKSTEP_RETURN_IF_ERROR(check_room(bytes));
  if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
    return system_error("sizing a memory descriptor to " + std::to_string(bytes) + " bytes", errno);
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, kSizeSeals) != 0)
    return system_error("sealing a memory descriptor", errno);
  return fd;
}

Status populate(std::byte* data, std::size_t bytes) {
  while (bytes > 0 && ::madvise(data, bytes, MADV_POPULATE_WRITE) != 0) {
    if (errno == EINTR || errno == EAGAIN) continue;
    if (!is_unknown_advice(errno))
      return system_error("populating " + std::to_string(bytes) + " bytes", ENOMEM);
    touch(data, bytes);
    break;
  }
  return Status();
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

Result<Mapping> Mapping::map(const Fd& fd, std::size_t bytes, std::size_t populated) {
  const auto size = sealed_size(fd);
  if (!size.ok()) return size.status();
  if (bytes == kAll) bytes = size.value();
  if (bytes > size.value()) {
    return Status(ErrorCode::internal, "a memory descriptor holds " + std::to_string(size.value()) +
                                           " bytes where its peer announced " + std::to_string(bytes));
  }
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (data == MAP_FAILED) return system_error("mapping " + std::to_string(bytes) + " shared bytes", errno);
  Mapping mapping(static_cast<std::byte*>(data), bytes);
  wish_for_huge_pages(data, std::min(bytes, populated));
  LOCKSTEP_RETURN_IF_ERROR(populate(mapping.data_, std::min(bytes, populated)));
  return mapping;
}

Result<Mapping> Mapping::map_copy(const Fd& fd, std::size_t offset, std::size_t bytes) {
  void* data =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd.get(), static_cast<off_t>(offset));
  if (data == MAP_FAILED) return system_error("mapping a copy of " + std::to_string(bytes) + " bytes", errno);
  return Mapping(static_cast<std::byte*>(data), bytes);
}

Result<Mapping> Mapping::map_private(std::size_t bytes) {
  void* data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return system_error("mapping " + std::to_string(bytes) + " private bytes", errno);
  Mapping mapping(static_cast<std::byte*>(data), bytes);
  LOCKSTEP_RETURN_IF_ERROR(populate(mapping.data_, bytes));
  return mapping;
}

// Not by the C library's function: wherever a process uses UCX before 1.15 that is UCX's, which knows no
// target, and moves the mapping to address 0.
Status Mapping::move_over(std::byte* target) {
  // UCX keeps registrations by address, and hears of this call, not of the other: a device would go on with
  // the old pages.
  static_cast<void>(::madvise(target, size_, MADV_DONTNEED));
  constexpr unsigned long kHow = MREMAP_MAYMOVE | MREMAP_FIXED;
  if (::syscall(SYS_mremap, data_, size_, size_, kHow, target) == -1) {
    return system_error("moving a mapping of " + std::to_string(size_) + " bytes over its new address",
                        errno);
  }
  release();
  return Status();
}

std::byte* Mapping::release() noexcept {
  size_ = 0;
  return std::exchange(data_, nullptr);
}

}  // namespace lockstep::internal
