#include "bench/floors/shared_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace floors {

SharedFile::SharedFile(const std::string& path, std::size_t bytes) : bytes_(bytes) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    throw std::system_error(errno, std::generic_category(), path);
  }
  data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  close(fd);
  if (data_ == MAP_FAILED) throw std::system_error(errno, std::generic_category(), path);
}

SharedFile::SharedFile(SharedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}

SharedFile::~SharedFile() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace floors
