// The reducer's modes: all combinations of those that can be combined, against what one process would
// compute.
#include <gtest/gtest.h>

#include "tests/ddp/mode_world.hpp"

namespace lockstep {
namespace {

using testing::on_ranks;

TEST(Modes, InEveryCombinationGiveTheResultOfOneProcess) {
  for (unsigned bits = 0; bits < 128; ++bits) {
    Modes modes;
    modes.accumulation = bits & 1;
    modes.unused = bits & 2;
    modes.uneven = bits & 4;
    modes.hook = bits & 8;
    modes.views = bits & 16;
    modes.clipping = bits & 32;
    modes.check_first = bits & 64;
    SCOPED_TRACE(modes.name());
    on_ranks(3, bits % 3 == 0 ? "tcp" : "shm",
             [&](Communicator& communicator) { ModeRun(communicator, modes).run(); });
    if (::testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace lockstep
