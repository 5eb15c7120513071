// Env: the only source of time and randomness. Real code gets real_env(); the simulator hands out virtual
// time and one seed. A lint (tests/lint) forbids clocks, sleeps and random devices everywhere else.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

namespace lockstep::internal {

/// Nanoseconds on a monotonic clock with an arbitrary start.
using Nanos = std::int64_t;
inline constexpr Nanos kForever = INT64_MAX;

class Env {
 public:
  virtual ~Env() = default;
  virtual Nanos now() noexcept = 0;
  /// A 64-bit random number: unpredictable in the real Env, a function of the seed in the simulator.
  virtual std::uint64_t random() noexcept = 0;
  /// Asks to be stepped again at `when` at the latest. A hint: the real Env needs none, the simulator
  /// schedules an event.
  virtual void wake_at(Nanos when) noexcept = 0;
};

/// CLOCK_MONOTONIC and getrandom(2). Thread-safe.
Env& real_env() noexcept;

/// Fills `bytes` from the operating system's secure generator (keys, nonces). Aborts the process if there is
/// none.
void secure_random(std::span<std::uint8_t> bytes) noexcept;

/// Blocks this thread. For tools and the start-up's retry loops only, never in the engine.
void sleep_for(std::chrono::nanoseconds duration) noexcept;

constexpr Nanos to_nanos(std::chrono::nanoseconds duration) { return duration.count(); }

}  // namespace lockstep::internal
