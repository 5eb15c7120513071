// Twins in ranks that are processes, and what one does with both.
#pragma once

#include <functional>

#include "tests/ddp/device_twins.hpp"
#include "tests/engine/process_group.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep::testing {

inline void on_forked_ranks(int ranks, const std::function<void(Communicator&)>& body) {
  const MeetingPlace place;
  internal::testing::run_forked(ranks, [&](int rank) {
    try {
      Communicator host = place.join(rank, ranks, "auto");
      body(host);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << rank << ": " << error.what();
    }
  });
}

/// A good step; every gradient new.
inline void step(Twins& twins, unsigned seed, std::size_t parameters = kParameters) {
  for (std::size_t i = 0; i < parameters; ++i) {
    twins.compute(i, seed);
    twins.mark(i);
  }
  twins.wait();
}

/// Both reducers fail the step with the same text.
inline void expect_same_error(Twins& twins, const std::string& text) {
  const Error there = thrown_by([&] { twins.on_device->wait(twins.stream); });
  const Error here = thrown_by([&] { twins.on_host->wait(); });
  EXPECT_STREQ(there.what(), here.what());
  EXPECT_EQ(there.code(), here.code());
  EXPECT_EQ(there.culprit(), here.culprit());
  EXPECT_NE(std::string(there.what()).find(text), std::string::npos) << there.what();
}

}  // namespace lockstep::testing
