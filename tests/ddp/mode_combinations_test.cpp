// The modes: all combinations of those that can be combined, against what one process would compute.
#include <gtest/gtest.h>

#include "tests/ddp/mode_world.hpp"

namespace lockstep {
namespace {

using testing::on_ranks;

Modes modes_of(unsigned bits, int zero) {
  Modes modes;
  modes.accumulation = bits & 1;
  modes.unused = bits & 2;
  modes.uneven = bits & 4;
  modes.hook = bits & 8;
  modes.views = bits & 16;
  modes.clipping = bits & 32;
  modes.check_first = bits & 64;
  modes.zero = zero;
  return modes;
}

template <typename Trainer>
void expect_the_result_of_one_process(int zero, bool overlap_forward = false) {
  for (unsigned bits = 0; bits < 128; ++bits) {
    Modes modes = modes_of(bits, zero);
    modes.overlap_forward = overlap_forward;
    if (modes.hook && overlap_forward) continue;  // Refused.
    SCOPED_TRACE(modes.name());
    on_ranks(3, bits % 3 == 0 ? "tcp" : "shm",
             [&](Communicator& communicator) { ModeRun<Trainer>(communicator, modes).run(); });
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(Modes, InEveryCombinationGiveTheResultOfOneProcess) { expect_the_result_of_one_process<Reducer>(0); }

TEST(Modes, InEveryCombinationWithOverlappedForwardGiveTheResultOfOneProcess) {
  expect_the_result_of_one_process<Reducer>(0, true);
}

TEST(Modes, InEveryCombinationWithZeroOneGiveTheResultOfOneProcess) {
  expect_the_result_of_one_process<ShardedOptimizer>(1);
}

TEST(Modes, InEveryCombinationWithZeroTwoGiveTheResultOfOneProcess) {
  expect_the_result_of_one_process<ShardedOptimizer>(2);
}

}  // namespace
}  // namespace lockstep
