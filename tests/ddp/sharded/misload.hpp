// A checkpoint that one rank cannot load.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/ddp.hpp"
#include "tests/ddp/thrown_by.hpp"

namespace lockstep::testing {

/// The culprit has a tensor that the checkpoint lacks: an error on all ranks, which are as before.
inline void expect_misload(Communicator& communicator, const std::string& directory,
                           std::vector<TensorSlice> slices, int culprit) {
  if (communicator.rank() == culprit) slices.front().name = "nobody's";
  const Error error = thrown_by([&] { load_checkpoint(communicator, directory, slices); });
  if (error.code() != ErrorCode::mismatch) throw error;  // The group has ended.
  EXPECT_NE(std::string(error.what()).find("nobody's"), std::string::npos) << error.what();
  EXPECT_EQ(communicator.state(), ErrorCode::ok);
}

}  // namespace lockstep::testing
