#include "bench/calibrate_probes.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "bench/buffer.hpp"

namespace lockstep::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Two sleepers that wake each other.
double wake_seconds() {
  constexpr int kTrips = 400;
  int there[2], back[2];
  if (pipe(there) != 0 || pipe(back) != 0) return 0;
  const auto pass = [](int from, int to) {
    char byte = 0;
    return read(from, &byte, 1) == 1 && write(to, &byte, 1) == 1;
  };
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  std::thread echo([&] {
    bind_to_core(1);
    for (int i = 0; i < kTrips && pass(there[0], back[1]); ++i) {
    }
  });
  bind_to_core(0);
  std::vector<double> trips;
  for (int i = 0; i < kTrips; ++i) {
    const char byte = 1;
    char answer = 0;
    const auto start = Clock::now();
    if (write(there[1], &byte, 1) != 1 || read(back[0], &answer, 1) != 1) break;
    trips.push_back(seconds_since(start));
  }
  for (const int end : {there[1], there[0], back[1], back[0]}) close(end);
  echo.join();
  sched_setaffinity(0, sizeof before, &before);
  if (trips.empty()) return 0;
  std::nth_element(trips.begin(), trips.begin() + static_cast<std::ptrdiff_t>(trips.size() / 2), trips.end());
  return trips[trips.size() / 2] / 2;
}

#if defined(__SSE2__)
template <bool kPast>
void copy(__m128i* to, const __m128i* from, std::size_t vectors) {
  for (std::size_t i = 0; i < vectors; ++i) {
    const __m128i value = _mm_load_si128(from + i);
    if constexpr (kPast) {
      _mm_stream_si128(to + i, value);
    } else {
      _mm_store_si128(to + i, value);
      asm volatile("" ::: "memory");  // kept as a loop: memcpy would choose its own stores
    }
  }
  if constexpr (kPast) _mm_sfence();
}

__m128i read_all(const __m128i* from, std::size_t vectors) {
  __m128i sum = _mm_setzero_si128();
  for (std::size_t i = 0; i < vectors; ++i) sum = _mm_add_epi64(sum, _mm_load_si128(from + i));
  return sum;
}

template <bool kPast>
double copy_seconds(__m128i* to, const __m128i* from, std::size_t vectors) {
  constexpr int kTries = 5;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTries; ++i) {
    const auto start = Clock::now();
    copy<kPast>(to, from, vectors);
    const __m128i sum = read_all(to, vectors);
    asm volatile("" : : "x"(sum));
    least = std::min(least, seconds_since(start));
  }
  return least;
}
#endif

}  // namespace

void bind_to_core(std::size_t index) {
  cpu_set_t allowed, one;
  CPU_ZERO(&one);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  index %= static_cast<std::size_t>(CPU_COUNT(&allowed));
  for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed) || index-- > 0) continue;
    CPU_SET(core, &one);
    sched_setaffinity(0, sizeof one, &one);
    return;
  }
}

std::int64_t worthwhile_spin() { return std::llround(2e6 * wake_seconds()); }

std::uint64_t non_temporal_from() {
#if defined(__SSE2__)
  constexpr std::size_t kLeast = 256 << 10, kMost = 64 << 20;
  const Buffer source(kMost, false), destination(kMost, false);
  const auto* from = reinterpret_cast<const __m128i*>(source.data());
  auto* to = reinterpret_cast<__m128i*>(destination.data());
  std::uint64_t threshold = 0;
  for (std::size_t bytes = kMost; bytes >= kLeast; bytes /= 2) {
    const std::size_t vectors = bytes / sizeof(__m128i);
    const double kept = copy_seconds<false>(to, from, vectors);
    if (copy_seconds<true>(to, from, vectors) >= kept) break;
    threshold = bytes;
  }
  return threshold;
#else
  return 0;
#endif
}

}  // namespace lockstep::bench
