// Runs one function on every rank of a group of threads.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "lockstep/communicator.hpp"

namespace lockstep {

/// Returns when all ranks returned. An exception of a rank fails the test, and aborts its communicator so
/// that the others return too.
inline void on_ranks(int n, const std::function<void(Communicator&)>& body) {
  std::vector<Communicator> group = Communicator::local_group(n);
  std::vector<std::thread> threads;
  for (Communicator& communicator : group) {
    threads.emplace_back([&] {
      try {
        body(communicator);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << communicator.rank() << ": " << error.what();
        communicator.abort("the test failed on this rank");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// The Error that `call` throws; fails the test when it throws none.
inline Error error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return Error(ErrorCode::ok, "");
}

}  // namespace lockstep
