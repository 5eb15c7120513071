// The predicted time of programs is what the literature says of their algorithms.
#include "collectives/select/cost.hpp"

#include <cmath>

#include "collectives/verify/verify.hpp"
#include "tests/programs/cases.hpp"

namespace lockstep::internal {
namespace {

constexpr MediumCost kLink{.alpha = 20e-6, .beta = 1e-9, .gamma = 0.3e-9, .copy = 0.1e-9, .sync = 0.2e-6};
constexpr std::size_t kElementBytes = 4;

Shape plain_shape(Collective collective, int world, std::uint64_t count) {
  Shape shape;
  shape.collective = collective;
  shape.world = world;
  shape.count = count;
  return shape;
}

double predicted(Medium medium, std::string_view name, const Shape& shape) {
  const auto row = find_algorithm(shape.collective, medium, name);
  EXPECT_TRUE(row.ok()) << row.status().message();
  return predict_seconds(build_all(*row.value(), shape).programs, kElementBytes, kLink);
}

TEST(Cost, RingAllReduce) {
  for (const int world : {2, 3, 8, 16}) {
    const std::uint64_t part = 1000;
    const Shape shape = plain_shape(Collective::all_reduce, world, part * static_cast<std::uint64_t>(world));
    const double hops = world - 1, bytes = static_cast<double>(part * kElementBytes);
    const double expected = 2 * hops * (kLink.alpha + bytes * kLink.beta) + hops * bytes * kLink.gamma;
    EXPECT_NEAR(predicted(Medium::links, "ring", shape), expected, 1e-12) << world;
  }
}

TEST(Cost, RecursiveDoubling) {
  for (const int world : {2, 4, 64}) {
    const Shape shape = plain_shape(Collective::all_reduce, world, 1000);
    const double rounds = std::log2(world), bytes = 1000.0 * kElementBytes;
    const double expected = rounds * (kLink.alpha + bytes * (kLink.beta + kLink.gamma));
    EXPECT_NEAR(predicted(Medium::links, "recursive_doubling", shape), expected, 1e-12) << world;
  }
}

TEST(Cost, TheRootOfADirectGatherReceivesOneMessageAfterTheOther) {
  const Shape shape = plain_shape(Collective::gather, 9, 1000);
  const double expected = kLink.alpha + 8 * 1000.0 * kElementBytes * kLink.beta;
  EXPECT_NEAR(predicted(Medium::links, "direct", shape), expected, 1e-12);
}

TEST(Cost, FusedAllReduce) {
  const Shape shape = plain_shape(Collective::all_reduce, 4, 4 * 6400);
  const double bytes = 6400.0 * kElementBytes;
  const double expected = 2 * kLink.sync + bytes * 3 * (kLink.gamma + kLink.copy);
  EXPECT_NEAR(predicted(Medium::domain_registered, "fused", shape), expected, 1e-12);
}

TEST(Cost, SegmentsHideTheChain) {
  Shape shape = plain_shape(Collective::broadcast, 8, 1 << 20);
  const double whole = predicted(Medium::links, "chain", shape);
  shape.segment = 1 << 15;
  EXPECT_LT(predicted(Medium::links, "chain", shape), whole / 4);
}

TEST(Cost, ProgramsThatDoNotEndCostInfinitely) {
  ProgramSet set = build_all(*find_algorithm(Collective::barrier, Medium::links, "dissemination").value(),
                             plain_shape(Collective::barrier, 3, 0));
  set.programs[1].lanes[0].steps.pop_back();
  EXPECT_TRUE(std::isinf(predict_seconds(set.programs, kElementBytes, kLink)));
}

TEST(Cost, EveryProgramHasOne) {
  for (const Algorithm* row : every_row()) {
    for (const int world : {2, 5, 8}) {
      const Shape shape = shape_of(*row, world, 0, 1001, 2);
      const double seconds = predict_seconds(build_all(*row, shape).programs, kElementBytes, kLink);
      EXPECT_TRUE(std::isfinite(seconds) && seconds > 0) << name_of_row(*row) << ' ' << world;
    }
  }
}

}  // namespace
}  // namespace lockstep::internal
