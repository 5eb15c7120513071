// What is known of the network between hosts decides how all_reduce crosses it.
#include "collectives/select/network.hpp"

#include <gtest/gtest.h>

#include "collectives/select/choose.hpp"

namespace lockstep::internal {
namespace {

constexpr MeasuredNetwork kGigabit{20'000, 8'000, 0, 0};  // 20 us, 125 MB/s.
constexpr MeasuredNetwork kFast{10'000, 100, 1'000, 0};   // 10 us, 10 GB/s.
/// Hosts that are containers of one small machine: what many send takes its cores' time.
constexpr MeasuredNetwork kOneMachine{10'000, 500, 80'000, 1'000};

std::string chosen(const MeasuredNetwork& measured, const std::vector<int>& hosts, std::uint64_t bytes,
                   Collective collective = Collective::all_reduce) {
  const int world = static_cast<int>(hosts.size());
  const CostGround ground{world, Load::spare, 256 << 10, hosts, coarse(measured)};
  ChoiceTable table(builtin_model(), ground);
  CallFacts facts;
  facts.collective = collective;
  facts.type = DataType::f32;
  facts.count = bytes / 4;
  const auto selection = choose(facts, typical_shape(collective, ground, bytes), {world, false, true}, table);
  EXPECT_TRUE(selection.ok()) << selection.status().message();
  return std::string(selection.value().links->name);
}

TEST(Network, NearFiguresBecomeTheSame) {
  EXPECT_EQ(coarse({20'000, 8'200, 100, 0}), coarse({19'000, 8'000, 96, -5}));
  EXPECT_NE(coarse({20'000, 8'200, 0, 0}), coarse({40'000, 8'200, 0, 0}));
  EXPECT_FALSE(Network().known());
  EXPECT_TRUE(coarse({1, 0, 0, 0}).known());
}

TEST(Network, BytesDecideWhereTheyAreDearAndMessagesWhereTheyAre) {
  const std::vector<int> alone{0, 1, 2, 3};
  EXPECT_EQ(chosen(kFast, alone, 64 << 10), "recursive_doubling") << "the fewest steps";
  EXPECT_NE(chosen(kGigabit, alone, 64 << 10), "recursive_doubling") << "a third more bytes than need be";
  EXPECT_EQ(chosen(kGigabit, alone, 1 << 10), "recursive_doubling");
}

TEST(Network, WhereHostsShareCoresFewMessagesWin) {
  const std::vector<int> pairs{0, 0, 1, 1, 2, 2, 3, 3};
  EXPECT_EQ(chosen(kFast, pairs, 1 << 10), "leaders");
  EXPECT_EQ(chosen(kOneMachine, pairs, 1 << 10), "leaders");
  EXPECT_EQ(chosen(kGigabit, pairs, 64 << 10), "hierarchical");
}

TEST(Network, LargeSumsAndOtherCollectivesAreLeftToTheRules) {
  const std::vector<int> pairs{0, 0, 1, 1, 2, 2, 3, 3};
  for (const MeasuredNetwork& network : {kGigabit, kFast, kOneMachine}) {
    EXPECT_EQ(chosen(network, pairs, 4 << 20), "hierarchical");
    EXPECT_EQ(chosen(network, {0, 1, 2, 3}, 4 << 20), "ring");
    EXPECT_EQ(chosen(network, pairs, 1 << 10, Collective::all_gather), "hierarchical");
  }
}

}  // namespace
}  // namespace lockstep::internal
