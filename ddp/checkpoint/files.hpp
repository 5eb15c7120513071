// Files that are there whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "lib/base/status.hpp"
#include "lib/net/fd.hpp"

namespace lockstep::internal {

enum class IfThere : std::uint8_t { replace, refuse };

/// Writes beside its final name and takes it in commit(), when all bytes are on the disk; that it has the
/// name lasts from sync_directory() on. Without commit() it leaves nothing behind.
class AtomicFile {
 public:
  /// `there`: what another one has left that was not committed, or is writing now.
  static Result<AtomicFile> create(const std::filesystem::path& path, IfThere there);
  AtomicFile(AtomicFile&&) noexcept = default;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  Status write(std::span<const std::byte> bytes);
  /// After an error the file that had the name before has it still.
  Status commit();
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  AtomicFile(std::filesystem::path path, Fd fd);
  std::filesystem::path path_, temporary_;
  Fd fd_;
  std::uint64_t bytes_ = 0;
};

/// Held by one job at a time, of all processes and hosts that look at the directory; not beyond its process.
class DirectoryLock {
 public:
  /// invalid_argument when another job holds it. Where there are no locks nobody is kept out.
  static Result<DirectoryLock> take(const std::filesystem::path& directory);
  DirectoryLock(DirectoryLock&&) noexcept = default;
  DirectoryLock& operator=(DirectoryLock&&) = delete;
  ~DirectoryLock();

 private:
  explicit DirectoryLock(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;  // None where there are no locks.
};

/// The names of the files in a directory are on the disk.
Status sync_directory(const std::filesystem::path& directory);

/// A name that AtomicFile gives while it writes.
bool is_temporary(std::string_view name);

/// Whether there is nothing of this name. What cannot be looked at may be there: opening it tells why.
bool is_missing(const std::filesystem::path& path);

/// A file opened to read.
class InputFile {
 public:
  static Result<InputFile> open(const std::filesystem::path& path);
  /// Also says when it is no file of bytes, but a pipe or a directory.
  Result<std::uint64_t> size() const;
  /// Fills `bytes` from `offset`; an error when the file ends before.
  Status read(std::uint64_t offset, std::span<std::byte> bytes) const;

 private:
  InputFile(std::filesystem::path path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  std::filesystem::path path_;
  Fd fd_;
};

/// The whole of a file of at most `limit` bytes.
Result<std::string> read_text(const std::filesystem::path& path, std::uint64_t limit);

/// SHA-256 in hexadecimal.
std::string checksum(std::span<const std::byte> bytes);

}  // namespace lockstep::internal
