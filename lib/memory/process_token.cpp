// process_token() of segment.hpp, and where it lies: drawn at the first use, and anew in a forked child.
#include <pthread.h>

#include <atomic>

#include "lib/base/env.hpp"
#include "lib/memory/segment.hpp"

namespace lockstep::internal {
namespace {

std::atomic<std::uint64_t> g_token{0};

// Two children forked after the first use must not take each other for threads of one process.
void watch_forks() {
  [[maybe_unused]] static const int watching =
      ::pthread_atfork(nullptr, nullptr, [] { g_token.store(0, std::memory_order_relaxed); });
}

}  // namespace

std::uint64_t process_token() noexcept {
  std::uint64_t token = g_token.load(std::memory_order_relaxed);
  if (token != 0) return token;
  watch_forks();
  std::uint64_t fresh = real_env().random() | 1;
  return g_token.compare_exchange_strong(token, fresh, std::memory_order_relaxed) ? fresh : token;
}

std::uint64_t process_token_address() noexcept {
  process_token();
  return reinterpret_cast<std::uintptr_t>(&g_token);
}

}  // namespace lockstep::internal
