// Waits of a test that have an end.
#pragma once

#include <chrono>
#include <thread>

namespace lockstep::testing {

/// Far longer than anything that is waited for takes, on a machine with much else to do.
inline constexpr std::chrono::seconds kPatience{20};

/// Whether `condition()` comes to hold. Only looks: makes no progress itself.
template <typename Condition>
bool eventually(Condition condition, std::chrono::steady_clock::duration patience = kPatience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

}  // namespace lockstep::testing
