// What several processes' devices read and write: words, and lines of two words with their flags. In kernels
// with system scope or volatile; on the host with atomics, so that tests run the same protocols.
#pragma once

#include <atomic>
#include <cstdint>

#include "lib/base/both.hpp"
#include "lib/reduce/cuda/pass.hpp"

namespace lockstep::internal::sync {

LOCKSTEP_BOTH std::uint32_t load_word(const std::uint32_t* from) {
#ifdef __CUDA_ARCH__
  std::uint32_t value;
  asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
#else
  return std::atomic_ref(*const_cast<std::uint32_t*>(from)).load(std::memory_order_acquire);
#endif
}

/// Everything that this stream wrote before is visible to who sees the value.
LOCKSTEP_BOTH void store_word(std::uint32_t* to, std::uint32_t value) {
#ifdef __CUDA_ARCH__
  __threadfence_system();
  asm volatile("st.release.sys.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
#else
  std::atomic_ref(*to).store(value, std::memory_order_release);
#endif
}

// For two ranks that each store one word and then look at the other's: one of them sees what the other
// stored.
LOCKSTEP_BOTH std::uint32_t load_ordered(const std::uint32_t* from) {
#ifdef __CUDA_ARCH__
  __threadfence_system();
  return load_word(from);
#else
  return std::atomic_ref(*const_cast<std::uint32_t*>(from)).load(std::memory_order_seq_cst);
#endif
}
LOCKSTEP_BOTH std::uint32_t store_then_load(std::uint32_t* to, std::uint32_t value,
                                            const std::uint32_t* from) {
#ifdef __CUDA_ARCH__
  store_word(to, value);
#else
  std::atomic_ref(*to).store(value, std::memory_order_seq_cst);
#endif
  return load_ordered(from);
}

/// Half payload, half flags. Each payload word stands in one 8-byte access with its own flag, so that no
/// fence is needed: who sees the flag sees the word beside it.
struct alignas(16) Line {
  std::uint32_t first, first_flag, second, second_flag;
};

/// The flags of an epoch: of its low half, and of both halves, so that a line that was left over from 2^32
/// epochs ago is not taken for a new one.
struct Flags {
  std::uint32_t first, second;
  static LOCKSTEP_BOTH Flags of(std::uint64_t epoch) {
    constexpr std::uint32_t kOdd = 0x9E3779B9u;
    const auto low = static_cast<std::uint32_t>(epoch);
    return {low, low ^ static_cast<std::uint32_t>(epoch >> 32) * kOdd};
  }
};

LOCKSTEP_BOTH Line load_line(const Line* from) {
#ifdef __CUDA_ARCH__
  Line line;
  asm volatile("ld.volatile.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(line.first), "=r"(line.first_flag), "=r"(line.second), "=r"(line.second_flag)
               : "l"(from)
               : "memory");
  return line;
#else
  auto* const halves = reinterpret_cast<std::uint64_t*>(const_cast<Line*>(from));
  const std::uint64_t one = std::atomic_ref(halves[0]).load(std::memory_order_acquire);
  const std::uint64_t two = std::atomic_ref(halves[1]).load(std::memory_order_acquire);
  return {static_cast<std::uint32_t>(one), static_cast<std::uint32_t>(one >> 32),
          static_cast<std::uint32_t>(two), static_cast<std::uint32_t>(two >> 32)};
#endif
}

LOCKSTEP_BOTH void store_line(Line* to, const Line& line) {
#ifdef __CUDA_ARCH__
  asm volatile("st.volatile.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(line.first), "r"(line.first_flag),
               "r"(line.second), "r"(line.second_flag)
               : "memory");
#else
  auto* const halves = reinterpret_cast<std::uint64_t*>(to);
  const auto half = [](std::uint32_t word, std::uint32_t flag) {
    return std::uint64_t{word} | std::uint64_t{flag} << 32;
  };
  std::atomic_ref(halves[0]).store(half(line.first, line.first_flag), std::memory_order_release);
  std::atomic_ref(halves[1]).store(half(line.second, line.second_flag), std::memory_order_release);
#endif
}

/// Sixteen bytes of payload travel as two lines.
struct Packet {
  Line lines[2];
};

LOCKSTEP_BOTH void send_packet(Packet* to, const cuda::Vector& payload, Flags flags) {
  store_line(&to->lines[0], {payload.words[0], flags.first, payload.words[1], flags.second});
  store_line(&to->lines[1], {payload.words[2], flags.first, payload.words[3], flags.second});
}

LOCKSTEP_BOTH Packet load_packet(const Packet* from) {
  return {{load_line(&from->lines[0]), load_line(&from->lines[1])}};
}

LOCKSTEP_BOTH bool has_arrived(const Packet& packet, Flags flags) {
  return packet.lines[0].first_flag == flags.first && packet.lines[0].second_flag == flags.second &&
         packet.lines[1].first_flag == flags.first && packet.lines[1].second_flag == flags.second;
}

LOCKSTEP_BOTH cuda::Vector payload_of(const Packet& packet) {
  return {{packet.lines[0].first, packet.lines[0].second, packet.lines[1].first, packet.lines[1].second}};
}

}  // namespace lockstep::internal::sync
