// A process whose file descriptors are used up for a while.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>

#include <vector>

#include "lib/net/fd.hpp"

namespace lockstep::testing {

/// AddressSanitizer's checks of objects need descriptors of their own: skip there.
#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kDescriptorsCanRunOut = false;
#else
inline constexpr bool kDescriptorsCanRunOut = true;
#endif

/// Takes every descriptor that the process may still open, until it ends.
class NoDescriptorsLeft {
 public:
  NoDescriptorsLeft() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit few = before_;
    few.rlim_cur = 256;
    setrlimit(RLIMIT_NOFILE, &few);
    for (internal::Fd fd(open("/dev/null", O_RDONLY | O_CLOEXEC)); fd;
         fd = internal::Fd(open("/dev/null", O_RDONLY | O_CLOEXEC)))
      taken_.push_back(std::move(fd));
  }
  ~NoDescriptorsLeft() { setrlimit(RLIMIT_NOFILE, &before_); }
  void give_back_one() { taken_.pop_back(); }
  NoDescriptorsLeft(const NoDescriptorsLeft&) = delete;
  NoDescriptorsLeft& operator=(const NoDescriptorsLeft&) = delete;

 private:
  rlimit before_{};
  std::vector<internal::Fd> taken_;
};

}  // namespace lockstep::testing
