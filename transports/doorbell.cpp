#include "transports/doorbell.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>

namespace lockstep::internal {
namespace {

constexpr std::uint32_t kAwake = 0, kOnFutex = 1, kInPoll = 2;
constexpr Nanos kNanosPerSecond = 1'000'000'000;

// ThreadSanitizer does not understand fences. Under it the waker always exchanges: read-modify-writes on one
// word are ordered, and each sees what the one before it published. (All writes to the word are exchanges for
// this reason.)
#if defined(__SANITIZE_THREAD__)
#define LOCKSTEP_FENCES 0
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LOCKSTEP_FENCES 0
#endif
#endif
#ifndef LOCKSTEP_FENCES
#define LOCKSTEP_FENCES 1
#endif

#if LOCKSTEP_FENCES
void fence() noexcept { std::atomic_thread_fence(std::memory_order_seq_cst); }
bool nobody_asleep(const Doorbell& bell) noexcept {
  return bell.asleep.load(std::memory_order_relaxed) == kAwake;
}
#else
void fence() noexcept {}
bool nobody_asleep(const Doorbell&) noexcept { return false; }
#endif

// Not FUTEX_PRIVATE: waker and sleeper are different processes. (std::atomic::wait would use a private one.)
void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout) noexcept {
  ::syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

void wake_sleeper(Doorbell& bell, std::uint32_t declared, int bell_fd) noexcept {
  if (declared == kOnFutex) futex(bell.asleep, FUTEX_WAKE, INT_MAX, nullptr);
  if (declared == kInPoll && bell_fd >= 0) {
    const std::uint64_t one = 1;
    // A full counter is readable already.
    [[maybe_unused]] const ssize_t written = ::write(bell_fd, &one, sizeof one);
  }
}

}  // namespace

void declare_asleep(Doorbell& bell, bool in_poll) noexcept {
  bell.asleep.exchange(in_poll ? kInPoll : kOnFutex, std::memory_order_seq_cst);
  fence();
}

void declare_awake(Doorbell& bell) noexcept { bell.asleep.exchange(kAwake, std::memory_order_acq_rel); }

void sleep_on(Doorbell& bell, Nanos timeout) noexcept {
  if (timeout <= 0) return;
  const timespec limit{timeout / kNanosPerSecond, timeout % kNanosPerSecond};
  futex(bell.asleep, FUTEX_WAIT, kOnFutex, timeout == kForever ? nullptr : &limit);
}

void ring(Doorbell& bell, int bell_fd) noexcept {
  fence();
  if (nobody_asleep(bell)) return;
  wake_sleeper(bell, bell.asleep.exchange(kAwake, std::memory_order_acq_rel), bell_fd);
}

void wake(Doorbell& bell, int bell_fd) noexcept {
  bell.asleep.exchange(kAwake, std::memory_order_acq_rel);
  wake_sleeper(bell, kOnFutex, bell_fd);
  wake_sleeper(bell, kInPoll, bell_fd);
}

}  // namespace lockstep::internal
