// What this machine can do at best, as one JSON object on standard output: copy and add rates with all cores
// at once, by the bytes that each core works on; the time for a cache line, and for a futex wake, from core
// to core.
//   peer-limits MILLISECONDS BYTES...    (time for each rate; sizes)
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "bench/median.hpp"
#include "bench/now.hpp"
#include "bench/peers/board.hpp"

namespace {

using lockstep::bench::median;
using lockstep::bench::now_us;

std::vector<int> allowed_cores() {
  cpu_set_t set;
  sched_getaffinity(0, sizeof set, &set);
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

// One thread on each core; body(thread).
void on_cores(const std::vector<int>& cores, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < cores.size(); ++i) {
    threads.emplace_back([&, i] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cores[i], &one);
      pthread_setaffinity_np(pthread_self(), sizeof one, &one);
      body(static_cast<int>(i));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Bytes read and written a second by all cores together, in GB/s. Each works on `bytes` of its own, half of
// them a source, half of them a destination.
double rate(const std::vector<int>& cores, std::size_t bytes, bool adds, double budget_us) {
  const std::size_t count = bytes / 2 / sizeof(float);
  std::barrier together(static_cast<std::ptrdiff_t>(cores.size()));
  std::vector<double> rates(cores.size());
  on_cores(cores, [&](int thread) {
    std::vector<float> to(count, 1.0f), from(count, 1.0f);
    float* __restrict out = to.data(), * __restrict in = from.data();
    const auto pass = [&] {
      if (adds) {
        for (std::size_t i = 0; i < count; ++i) out[i] += in[i];
      } else {
        std::memcpy(out, in, count * sizeof(float));
      }
      asm volatile("" : : "r"(out) : "memory");
    };
    pass();
    together.arrive_and_wait();
    std::vector<double> times;
    for (const double end = now_us() + budget_us; now_us() < end || times.size() < 3;) {
      // Several passes a sample, so that reading the clock does not count.
      const int passes = static_cast<int>(std::max<std::size_t>(1, (256u << 10) / bytes));
      const double start = now_us();
      for (int i = 0; i < passes; ++i) pass();
      times.push_back((now_us() - start) / passes);
    }
    const double touched = static_cast<double>(count * sizeof(float)) * (adds ? 3 : 2);
    rates[static_cast<std::size_t>(thread)] = touched / median(times) * 1e-3;
  });
  double total = 0;
  for (const double one : rates) total += one;
  return total;
}

// Half of a round trip between two cores; `wait(word, value)` returns when the word has that value, `set`
// sets it.
using Word = std::atomic<std::uint32_t>;
double half_round_trip(const std::vector<int>& cores, int rounds, void (*wait)(Word&, std::uint32_t),
                       void (*set)(Word&, std::uint32_t)) {
  alignas(64) static Word word;
  word = 0;
  std::vector<double> times;
  on_cores({cores[0], cores[1]}, [&](int side) {
    for (int i = 0; i < rounds; ++i) {
      const auto at = static_cast<std::uint32_t>(2 * i);
      if (side == 1) {
        wait(word, at + 1);
        set(word, at + 2);
        continue;
      }
      const double start = now_us();
      set(word, at + 1);
      wait(word, at + 2);
      times.push_back((now_us() - start) / 2);
    }
  });
  return median(times);
}

void spin_wait(Word& word, std::uint32_t value) {
  while (word.load(std::memory_order_acquire) != value) peers::relax();
}
void store(Word& word, std::uint32_t value) { word.store(value, std::memory_order_release); }
void futex_wait(Word& word, std::uint32_t value) {
  for (std::uint32_t seen; (seen = word.load(std::memory_order_acquire)) != value;) {
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
  }
}
void store_and_wake(Word& word, std::uint32_t value) {
  store(word, value);
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

// Whether one rank may read another's memory (CMA): tried between two processes of one parent.
bool may_read_siblings() {
  static char secret[8] = "read me";
  const pid_t idle = fork();
  if (idle == 0) {
    pause();
    _exit(0);
  }
  const pid_t reader = fork();
  if (reader == 0) {
    char copy[sizeof secret] = {};
    iovec here{copy, sizeof copy}, there{secret, sizeof secret};
    _exit(process_vm_readv(idle, &here, 1, &there, 1, 0) == sizeof copy ? 0 : 1);
  }
  int status = 1;
  waitpid(reader, &status, 0);
  kill(idle, SIGKILL);
  waitpid(idle, nullptr, 0);
  return status == 0;
}

void print_rates(const char* name, const std::vector<int>& cores, const std::vector<std::size_t>& sizes,
                 bool adds, double budget_us) {
  std::printf("\"%s\": {", name);
  const char* separator = "";
  for (const std::size_t bytes : sizes) {
    std::printf("%s\"%zu\": %.2f", separator, bytes, rate(cores, bytes, adds, budget_us));
    separator = ", ";
  }
  std::printf("}, ");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s MILLISECONDS BYTES...\n", argv[0]);
    return 2;
  }
  const double budget_us = std::atof(argv[1]) * 1e3;
  std::vector<std::size_t> sizes;
  for (int i = 2; i < argc; ++i) sizes.push_back(std::strtoull(argv[i], nullptr, 10));
  const std::vector<int> cores = allowed_cores();
  std::printf("{\"cores\": %zu, \"cma\": %s, ", cores.size(), may_read_siblings() ? "true" : "false");
  print_rates("copy_gbs", cores, sizes, false, budget_us);
  print_rates("add_gbs", cores, sizes, true, budget_us);
  if (cores.size() < 2) {
    std::printf("\"cache_line_us\": null, \"futex_us\": null}\n");
    return 0;
  }
  std::printf("\"cache_line_us\": %.4f, ", half_round_trip(cores, 20'000, spin_wait, store));
  std::printf("\"futex_us\": %.2f}\n", half_round_trip(cores, 500, futex_wait, store_and_wake));
  return 0;
}
