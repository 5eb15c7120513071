#include "lib/bootstrap/file_lock.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace lockstep::internal {
namespace {

int apply(const Fd& file, std::int64_t at, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = at;
  lock.l_len = 1;
  for (;;) {
    if (fcntl(file.get(), F_OFD_SETLK, &lock) == 0) return 0;
    if (errno != EINTR) return errno;
  }
}

/// gVisor has no locks of open file descriptions; a mount of Lustre, or of NFS without its lock daemon, may
/// have no locks at all.
bool has_no_locks(int error) {
  return error == EINVAL || error == ENOSYS || error == ENOLCK || error == EOPNOTSUPP;
}

short type_of(LockKind kind) { return kind == LockKind::shared ? F_RDLCK : F_WRLCK; }

}  // namespace

Result<bool> try_lock_byte(const Fd& file, std::int64_t at, LockKind kind) {
  const int error = apply(file, at, type_of(kind));
  if (error == 0) return true;
  if (error == EAGAIN || error == EACCES) return false;
  if (has_no_locks(error)) {
    return Status(ErrorCode::not_supported,
                  std::string("its file system has no such locks (") + std::strerror(error) +
                      "): meet at tcp://host:port, or in a file of another file system");
  }
  return system_error("cannot lock the file", error);
}

void unlock_byte(const Fd& file, std::int64_t at) noexcept { apply(file, at, F_UNLCK); }

}  // namespace lockstep::internal
