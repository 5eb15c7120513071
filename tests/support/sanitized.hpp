// Whether this build runs under a sanitizer, where everything takes several times as long.
#pragma once

#include <cstdint>

#if defined(__has_feature)
#define LOCKSTEP_TEST_HAS_FEATURE(name) __has_feature(name)
#else
#define LOCKSTEP_TEST_HAS_FEATURE(name) 0
#endif

namespace lockstep::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || \
    LOCKSTEP_TEST_HAS_FEATURE(address_sanitizer) || LOCKSTEP_TEST_HAS_FEATURE(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// How many of `all` random runs a test makes: with a sanitizer a quarter.
constexpr std::uint64_t runs_of(std::uint64_t all) { return kSanitized ? (all + 3) / 4 : all; }

}  // namespace lockstep::testing

#undef LOCKSTEP_TEST_HAS_FEATURE
