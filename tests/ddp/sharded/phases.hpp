// What random trainings in phases share: the checkpoint that they go on from, one that a rank cannot load,
// and that replicas are alike.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/ddp.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep::testing {

/// The last of those in `directory` where any was begun: the first may not have been finished.
inline std::optional<CheckpointInfo> last_checkpoint(const std::string& directory, bool begun) {
  if (!begun) return std::nullopt;
  try {
    return read_checkpoint_info(directory);
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// `hash`: of this rank's values.
inline void expect_replicas_alike(Communicator& communicator, std::uint64_t hash, const std::string& where) {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(&hash, all.data(), 1, DataType::u64);
  for (const std::uint64_t other : all) EXPECT_EQ(other, hash) << "replicas differ, " << where;
}

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
