#include "lib/net/fd.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <set>

namespace lockstep::internal {
namespace {

std::atomic<bool> g_in_child{false};

// Open descriptors of this process. The lock is held across fork(), so that the child sees a whole table.
struct Table {
  std::mutex mutex;
  std::set<int> open;
  Table() {
    pthread_atfork([] { instance().mutex.lock(); }, [] { instance().mutex.unlock(); },
                   &Table::close_in_child);
  }
  static Table& instance() {
    static Table* table = new Table;  // Outlives every static Fd.
    return *table;
  }
  /// With nothing open there is nothing of the parent's that the child could disturb: it may use the library.
  static void close_in_child() {
    if (!instance().open.empty()) g_in_child.store(true);
    for (int fd : instance().open) ::close(fd);
    instance().open.clear();
    instance().mutex.unlock();
  }
};

/// `fd` by another number, or -1 and errno, where it has that of a standard stream: a process that was
/// started without one prints and reads there all the same.
int above_standard_streams(int fd) noexcept {
  if (fd < 0 || fd > STDERR_FILENO) return fd;
  const int other = ::fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
  ::close(fd);
  if (other < 0) errno = EMFILE;
  return other;
}

/// Without memory to note it, nobody else would close it.
void note_open(int fd) try {
  std::lock_guard lock(Table::instance().mutex);
  Table::instance().open.insert(fd);
} catch (...) {
  ::close(fd);
  throw;
}

}  // namespace

Fd::Fd(int fd) : fd_(above_standard_streams(fd)) {
  if (fd_ >= 0) note_open(fd_);
}

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

void Fd::reset() noexcept {
  if (fd_ < 0) return;
  Table& table = Table::instance();
  std::lock_guard lock(table.mutex);
  // In a forked child the number may belong to somebody else by now.
  if (table.open.erase(fd_) == 1) ::close(fd_);
  fd_ = -1;
}

bool in_forked_child() noexcept { return g_in_child.load(std::memory_order_relaxed); }

Status forked_child_error() {
  return Status(ErrorCode::not_supported,
                "lockstep was in use in the parent when this process was forked: use it in the parent, fork "
                "before its first use, or call exec in the child");
}

}  // namespace lockstep::internal
