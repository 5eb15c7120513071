// FileIdentity: what lies behind a descriptor.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <utility>

#include "lib/net/fd.hpp"

namespace lockstep::internal {

/// Device and inode: two descriptors that have the same are of one file. All eventfds are, to the kernel.
using FileIdentity = std::pair<dev_t, ino_t>;

/// None, with the reason in errno, of what is not open.
inline std::optional<FileIdentity> identity_of(const Fd& fd) noexcept {
  struct stat facts {};
  if (::fstat(fd.get(), &facts) != 0) return std::nullopt;
  return FileIdentity(facts.st_dev, facts.st_ino);
}

}  // namespace lockstep::internal
