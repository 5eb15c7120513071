#include "lib/bootstrap/file_lock.hpp"

#include <fcntl.h>

#include <cerrno>

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

short type_of(LockKind kind) { return kind == LockKind::shared ? F_RDLCK : F_WRLCK; }

}  // namespace

Result<bool> try_lock_byte(const Fd& file, std::int64_t at, LockKind kind) {
  const int error = apply(file, at, type_of(kind));
  if (error == 0) return true;
  if (error == EAGAIN || error == EACCES) return false;
  if (error == EINVAL)
    return Status(
        ErrorCode::not_supported,
        "this system has no locks of open file descriptions (gVisor has none): meet at tcp://host:port");
  return system_error("cannot lock the file", error);
}

void unlock_byte(const Fd& file, std::int64_t at) noexcept { apply(file, at, F_UNLCK); }

}  // namespace lockstep::internal
