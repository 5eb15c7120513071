// Ranks as threads of the test: each runs the same function on its own communicator.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/lockstep.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep::testing {

/// Runs `body(communicator)` for every rank of a fresh group; exceptions become test failures that name the
/// rank.
inline void on_ranks(int n, std::string_view transports, const std::function<void(Communicator&)>& body) {
  auto group = Communicator::local_group(n, transports);
  std::vector<std::thread> threads;
  for (Communicator& communicator : group) {
    threads.emplace_back([&] {
      try {
        body(communicator);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << communicator.rank() << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// The error that `body` ends with; a failure of the test when it ends well.
inline std::pair<ErrorCode, std::string> error_of(const std::function<void()>& body) {
  const Error error = thrown_by(body);
  return {error.code(), error.what()};
}

}  // namespace lockstep::testing
