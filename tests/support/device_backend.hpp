// The device backend of a test's process.
#pragma once

#include "lib/device/backend.hpp"
#include "tests/support/must.hpp"

namespace lockstep::testing {

inline internal::Backend& backend() { return *internal::testing::must(internal::device_backend()); }

}  // namespace lockstep::testing
