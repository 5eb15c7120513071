// A call that was made before is made again in place, unless it needs a closer look: then it takes the way of
// the first.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <optional>

#include "tests/engine/scripted_domain.hpp"

namespace lockstep::internal {
namespace {

class RepeatedEngine : public testing::DomainEngine {
 protected:
  static Call all_reduce(ReduceOp op, const float* input, float* output) {
    Call call;
    call.facts.collective = Collective::all_reduce;
    call.facts.type = DataType::f32;
    call.facts.op = op;
    call.facts.count = call.input_elements = call.output_elements = 4;
    call.input = input;
    call.output = output;
    return call;
  }
  /// The peer has come to that, too.
  std::optional<Status> again(const CallFacts& facts, const void* input, void* output,
                              const CallOptions& options = {}) {
    answer(facts, 1);
    return engine_->run_again(facts, input, output, options);
  }

  alignas(8) std::array<float, 16> in_{1, 2, 3, 4};
  alignas(8) std::array<float, 16> out_{};
};

TEST_F(RepeatedEngine, LooksCloserAtBuffersThatAreNotPlain) {
  const Call call = all_reduce(ReduceOp::sum, in_.data(), out_.data());
  answer(call.facts, 0);
  EXPECT_TRUE(engine_->run(call).ok());
  float* const in = in_.data();
  ASSERT_FALSE(again(call.facts, in, nullptr));
  ASSERT_FALSE(again(call.facts, nullptr, out_.data()));
  ASSERT_FALSE(again(call.facts, in, reinterpret_cast<std::byte*>(out_.data()) + 1));
  ASSERT_FALSE(again(call.facts, in, in + 2)) << "they overlap";
  CallOptions named;
  named.algorithm = "one_shot";
  ASSERT_FALSE(again(call.facts, in, out_.data(), named));
  const auto plain = again(call.facts, in, in);
  EXPECT_TRUE(plain && plain->ok());
}

TEST_F(RepeatedEngine, ScalesItsInputEachTime) {
  Call call = all_reduce(ReduceOp::premul_sum, in_.data(), out_.data());
  call.scale = 2;
  for (const std::uint64_t sequence : {0, 1}) {
    out_.fill(0);
    answer(call.facts, sequence);
    EXPECT_TRUE(engine_->run(call).ok());
    EXPECT_EQ(out_[3], 8.0f);
  }
}

}  // namespace
}  // namespace lockstep::internal
