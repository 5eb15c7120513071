#include "ddp/checkpoint/files.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "lib/base/hexadecimal.hpp"
#include "lib/bootstrap/digest.hpp"

namespace lockstep::internal {
namespace {

constexpr std::string_view kTemporarySuffix = ".part";
constexpr const char* kLockName = "save.lock";  // It stays: whoever removed it might remove another job's.
constexpr mode_t kMode = 0666;                  // As the umask allows.
// In a directory where others may write, a name that is to be written may be their link to a file of this
// user's elsewhere, or a pipe that nobody reads.
constexpr int kNoOthers = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;

Status failed(const char* what, const std::filesystem::path& path) {
  return system_error(std::string("cannot ") + what + " " + path.string(), errno);
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path, Fd fd)
    : path_(std::move(path)),
      temporary_(path_.string() + std::string(kTemporarySuffix)),
      fd_(std::move(fd)) {}

Result<AtomicFile> AtomicFile::create(const std::filesystem::path& path, IfThere there) {
  const std::string temporary = path.string() + std::string(kTemporarySuffix);
  const int mode = there == IfThere::refuse ? O_EXCL : O_TRUNC;
  Fd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | mode | kNoOthers, kMode));
  if (!fd && errno == EEXIST) {
    return Status(ErrorCode::invalid_argument, temporary +
                                                   " is there already: another job saves to this directory; "
                                                   "give each one of its own");
  }
  if (!fd) return failed("write", temporary);
  return AtomicFile(path, std::move(fd));
}

AtomicFile::~AtomicFile() {
  if (fd_) ::unlink(temporary_.c_str());
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  bytes_ += bytes.size();
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failed("write", temporary_);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

Status AtomicFile::commit() {
  if (::fsync(fd_.get()) != 0) return failed("bring to the disk", temporary_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return failed("rename to", path_);
  fd_.reset();
  return {};
}

/// A file system without locks, or a lock of another user's, is no reason not to save.
Result<DirectoryLock> DirectoryLock::take(const std::filesystem::path& directory) {
  Fd fd(::open((directory / kLockName).c_str(), O_RDWR | O_CREAT | kNoOthers, kMode));
  if (!fd) return DirectoryLock(Fd());
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return DirectoryLock(std::move(fd));
  if (errno != EWOULDBLOCK) return DirectoryLock(Fd());
  return Status(ErrorCode::invalid_argument,
                "another job is saving to this directory; give each job one of its own");
}

/// Not left to the end of the descriptor, which a child that was forked meanwhile has too.
DirectoryLock::~DirectoryLock() {
  if (fd_) ::flock(fd_.get(), LOCK_UN);
}

Status sync_directory(const std::filesystem::path& directory) {
  const Fd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return failed("bring to the disk", directory);
  return {};
}

bool is_temporary(std::string_view name) { return name.ends_with(kTemporarySuffix); }

bool is_missing(const std::filesystem::path& path) {
  std::error_code error;
  return !std::filesystem::exists(path, error) && !error;
}

Result<InputFile> InputFile::open(const std::filesystem::path& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));  // A pipe would wait for its writer.
  if (!fd) return failed("read", path);
  return InputFile(path, std::move(fd));
}

Result<std::uint64_t> InputFile::size() const {
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) return failed("read", path_);
  if (!S_ISREG(status.st_mode)) return Status(ErrorCode::invalid_argument, path_.string() + " is not a file");
  return static_cast<std::uint64_t>(status.st_size);
}

Status InputFile::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed("read", path_);
    if (got == 0) {
      return Status(ErrorCode::invalid_argument, path_.string() + " ends at byte " + std::to_string(offset));
    }
    offset += static_cast<std::uint64_t>(got);
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

Result<std::string> read_text(const std::filesystem::path& path, std::uint64_t limit) {
  auto file = InputFile::open(path);
  LOCKSTEP_RETURN_IF_ERROR(file.status());
  const auto size = file->size();
  LOCKSTEP_RETURN_IF_ERROR(size.status());
  if (size.value() > limit) {
    return Status(ErrorCode::invalid_argument, path.string() + " has " + std::to_string(size.value()) +
                                                   " bytes, more than the " + std::to_string(limit) +
                                                   " allowed");
  }
  std::string text(size.value(), '\0');
  LOCKSTEP_RETURN_IF_ERROR(file->read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

std::string checksum(std::span<const std::byte> bytes) { return hexadecimal(sha256(bytes)); }

}  // namespace lockstep::internal
