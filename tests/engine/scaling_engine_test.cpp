// An input that is scaled before its call begins is so a block at a time: in between others get the engine.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/engine/failing_engine.hpp"

namespace lockstep::internal {
namespace {

constexpr std::size_t kBlock = kReduceBlockBytes / sizeof(std::uint16_t);
constexpr std::uint16_t kOne = 0x3c00, kQuarter = 0x3400;  // As f16.

class ScalingEngine : public testing::FailingEngine {
 protected:
  void make_three() {
    make(3);
    for (const int peer : {1, 2}) link(peer).room = 3 * kReduceBlockBytes;
  }
  /// Of three blocks of ones.
  Call reduction(Collective collective, ReduceOp op, std::size_t outputs = 3 * kBlock) {
    Call call;
    call.facts.collective = collective;
    call.facts.type = DataType::f16;
    call.facts.op = op;
    call.facts.count = call.output_elements = outputs;
    call.input_elements = 3 * kBlock;
    call.scale = 0.25;
    call.input = input_.data();
    call.output = output_.data();
    return call;
  }
  std::size_t sent() { return count_sent(1, FrameKind::data) + count_sent(2, FrameKind::data); }

  std::vector<std::uint16_t> input_ = std::vector<std::uint16_t>(3 * kBlock, kOne);
  std::vector<std::uint16_t> output_ = std::vector<std::uint16_t>(3 * kBlock);
};

TEST_F(ScalingEngine, AnAverageIsScaledBlockByBlock) {
  make_three();
  start(reduction(Collective::all_reduce, ReduceOp::avg));
  for (const std::size_t block : {0, 1, 2}) {
    EXPECT_EQ(output_[(block + 1) * kBlock - 1], kQuarter) << "block " << block;
    EXPECT_EQ(block < 2 ? output_[(block + 1) * kBlock] : 0, 0) << "after block " << block;
    EXPECT_EQ(sent() > 0, block == 2) << "block " << block;
    engine_->step();
  }
}

TEST_F(ScalingEngine, NothingLeavesBeforeAllIsScaled) {
  make_three();
  start(reduction(Collective::reduce_scatter, ReduceOp::premul_sum, kBlock));
  EXPECT_EQ(sent(), 0u);
  engine_->step();
  EXPECT_EQ(sent(), 0u);
  engine_->step();
  EXPECT_GT(sent(), 0u);
  EXPECT_EQ(input_.back(), kOne);
}

TEST_F(ScalingEngine, AloneToo) {
  make(1);
  const Operation& alone = start(reduction(Collective::reduce, ReduceOp::premul_sum));
  EXPECT_FALSE(alone.done);
  EXPECT_EQ(output_.back(), 0);
  const std::vector<std::uint16_t> scaled(3 * kBlock, kQuarter);
  pass(0);
  EXPECT_TRUE(alone.done && alone.status.ok());
  EXPECT_EQ(output_, scaled);
  output_.assign(output_.size(), 0);
  EXPECT_TRUE(engine_->run(alone.call).ok());
  EXPECT_EQ(output_, scaled);
}

}  // namespace
}  // namespace lockstep::internal
