// The error that a call ends with.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "lockstep/error.hpp"

namespace lockstep::testing {

/// The Error that `call` throws; fails the test when it throws none.
inline Error thrown_by(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error was thrown";
  return Error(ErrorCode::ok, "");
}

}  // namespace lockstep::testing
