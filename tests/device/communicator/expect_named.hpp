// Who is named on a rank of a communicator that has ended, or is about to.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/device/communicator/device_world.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep::testing {

/// What this rank hears, by all ways, names one of `culprits`.
inline void expect_named(DeviceRank& self, ErrorCode code, const std::vector<int>& culprits) {
  internal::testing::wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
  const Error error = thrown_by([&] { self.communicator.wait(); });
  const std::string text = error.what(), who = "rank " + std::to_string(error.culprit());
  EXPECT_EQ(error.code(), code) << text;
  EXPECT_EQ(std::count(culprits.begin(), culprits.end(), error.culprit()), 1) << who << ": " << text;
  // By its host and pid, by what the device failed in, or by the address of a connection.
  const auto is_called = [&](const char* rest) { return text.find(who + rest) != text.npos; };
  EXPECT_TRUE(is_called(" (") || is_called(" of all") || is_called(" at ")) << text;
}

}  // namespace lockstep::testing
