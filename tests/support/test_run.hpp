// One program that ctest runs several times, over another transport or in another mode each time:
// tests/CMakeLists.txt, RUNS.
#pragma once

#include <cstdlib>

namespace lockstep::testing {

/// Which of its runs this is; `otherwise` when a person starts the program and says nothing.
inline const char* test_run(const char* otherwise) {
  const char* const named = std::getenv("TEST_RUN");
  return named != nullptr ? named : otherwise;
}

}  // namespace lockstep::testing
