#include "lib/base/env.hpp"

#include <sys/random.h>
#include <time.h>

#include <cerrno>
#include <cstdlib>

namespace lockstep::internal {
namespace {

class RealEnv final : public Env {
 public:
  Nanos now() noexcept override {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1'000'000'000 + t.tv_nsec;
  }
  std::uint64_t random() noexcept override {
    std::uint64_t value = 0;
    secure_random({reinterpret_cast<std::uint8_t*>(&value), sizeof value});
    return value;
  }
  void wake_at(Nanos) noexcept override {}
};

}  // namespace

Env& real_env() noexcept {
  // The reactor's thread asks for the time until the very end of the process.
  static RealEnv* env = new RealEnv;
  return *env;
}

void secure_random(std::span<std::uint8_t> bytes) noexcept {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = getrandom(bytes.data() + done, bytes.size() - done, 0);
    if (got < 0 && errno != EINTR) std::abort();  // No kernel that lockstep runs on is without it.
    if (got > 0) done += static_cast<std::size_t>(got);
  }
}

void sleep_for(std::chrono::nanoseconds duration) noexcept {
  timespec t{duration.count() / 1'000'000'000, duration.count() % 1'000'000'000};
  while (nanosleep(&t, &t) != 0 && errno == EINTR) {
  }
}

}  // namespace lockstep::internal
