// The choice follows the model, does not zig-zag, and is the same whoever computes it.
#include "collectives/select/choice_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "collectives/select/choose.hpp"

namespace lockstep::internal {
namespace {

constexpr std::uint64_t kSegment = 256 << 10;

std::vector<std::string> firsts(ChoiceTable& table, Collective collective, Medium medium) {
  std::vector<std::string> names;
  for (int size = 0; size < kSizeClasses; ++size) {
    const Ranking& ranking = table.ranking(collective, medium, std::uint64_t{1} << size);
    names.emplace_back(ranking.empty() ? "" : ranking.front()->name);
  }
  return names;
}

/// Whether an algorithm that was left for another comes back at a larger size.
bool zigzags(const std::vector<std::string>& names) {
  std::set<std::string> left;
  for (std::size_t i = 1; i < names.size(); ++i) {
    if (names[i] == names[i - 1]) continue;
    left.insert(names[i - 1]);
    if (left.contains(names[i])) return true;
  }
  return false;
}

/// The costs of the built-in model without what single algorithms were corrected by.
std::shared_ptr<CostModel> plain_model() {
  auto model = std::make_shared<CostModel>(*builtin_model());
  model->corrections.clear();
  return model;
}

TEST(ChoiceTable, EverySwitchIsWorthIt) {
  const auto model = builtin_model();
  for (const int world : {2, 3, 4, 8, 16}) {
    for (const Load load : {Load::spare, Load::crowded}) {
      const CostGround ground{world, load, kSegment};
      ChoiceTable table(model, ground);
      for (int i = 0; i < kCollectiveCount; ++i) {
        const auto collective = static_cast<Collective>(i);
        const Algorithm* before = nullptr;
        for (int size = 0; size < kSizeClasses; ++size) {
          const std::uint64_t bytes = std::uint64_t{1} << size;
          const Ranking& ranking = table.ranking(collective, Medium::links, bytes);
          ASSERT_FALSE(ranking.empty()) << name_of(collective);
          if (before != nullptr && ranking.front() != before) {
            EXPECT_LT(predict_call(*model, ground, *ranking.front(), bytes),
                      predict_call(*model, ground, *before, bytes) * (1 - kSwitchGain))
                << name_of(collective) << ", " << world << " ranks, " << bytes << " bytes";
          }
          before = ranking.front();
        }
      }
    }
  }
}

TEST(ChoiceTable, NearEqualsDoNotTakeTurns) {
  // Over two ranks ring and rabenseifner move the same bytes in as many steps.
  const auto model = plain_model();
  for (int size = 0; size < kSizeClasses; ++size) {
    for (const char* name : {"ring", "rabenseifner"}) {
      const bool favoured = (size % 2 == 0) == (name[1] == 'i');
      model->corrections[{Load::spare, LinkClass::tcp, Collective::all_reduce, name}].add(
          size, favoured ? 63.0 / 64 : 65.0 / 64);
    }
  }
  const CostGround ground{2, Load::spare, kSegment};
  ChoiceTable table(model, ground);
  const auto names = firsts(table, Collective::all_reduce, Medium::links);
  EXPECT_FALSE(zigzags(names)) << ::testing::PrintToString(names);
}

TEST(ChoiceTable, LatencyDecidesForTheSmallAndBytesForTheLarge) {
  const auto model = plain_model();
  LinkCost& tcp = model->cost(LinkClass::tcp, Load::spare);
  tcp.call = 0;
  tcp.step = 1e-6;
  tcp.alpha = 5e-6;
  for (LinkCost::Regime& regime : tcp.regimes) {
    regime.beta = 0.1e-9;
    regime.gamma = 0.05e-9;
    regime.copy = 0.02e-9;
  }
  ChoiceTable table(model, {8, Load::spare, kSegment});
  const auto all_reduce = [&](std::uint64_t bytes) {
    return std::string(table.ranking(Collective::all_reduce, Medium::links, bytes).front()->name);
  };
  EXPECT_EQ(all_reduce(8), "recursive_doubling");
  EXPECT_TRUE((std::set<std::string>{"ring", "rabenseifner", "direct"}).contains(all_reduce(64 << 20)))
      << all_reduce(64 << 20);
}

TEST(ChoiceTable, OffersPayFromSomeSizeOn) {
  ChoiceTable table(builtin_model(), {2, Load::spare, kSegment});
  EXPECT_FALSE(table.offers_pay(Collective::all_reduce, 1 << 10));
  EXPECT_TRUE(table.offers_pay(Collective::all_reduce, (1 << 10) + 1));
  EXPECT_TRUE(table.offers_pay(Collective::all_reduce, 64 << 10));
  bool before = false;
  for (int size = 0; size < 40; ++size) {
    const bool pays = table.offers_pay(Collective::all_reduce, std::uint64_t{1} << size);
    EXPECT_TRUE(pays || !before) << size;
    before = pays;
  }
  EXPECT_FALSE(table.offers_pay(Collective::barrier, 0)) << "there is no registered barrier";
}

TEST(ChoiceTable, LargeWorldsAreExtrapolated) {
  const auto model = plain_model();
  for (const Algorithm& algorithm : algorithms()) {
    // Programs for shared hosts are not for worlds without any.
    if (algorithm.medium != Medium::links || !supports(algorithm, {8, Load::spare, kSegment}, 4096)) continue;
    double before = 0;
    for (const int world : {8, 16, 17, 64, 1000}) {
      const double seconds = predict_call(*model, {world, Load::spare, kSegment}, algorithm, 4096);
      EXPECT_GE(seconds, before * 0.999) << algorithm.name << ' ' << world;
      before = seconds;
    }
  }
  const auto ring = find_algorithm(Collective::all_reduce, Medium::links, "ring");
  const auto at = [&](int world) {
    return predict_call(*model, {world, Load::spare, kSegment}, *ring.value(), 8);
  };
  EXPECT_NEAR(at(64) / at(16), 4, 0.4) << "a ring of four times the ranks has four times the steps";
}

TEST(ChoiceTable, RanksThatShareHostsSpareTheNetwork) {
  const auto model = plain_model();
  LinkCost& tcp = model->cost(LinkClass::tcp, Load::spare);
  tcp.alpha = 50e-6;  // A network of 1 Gbit/s.
  for (LinkCost::Regime& regime : tcp.regimes) regime.beta = 8e-9;
  constexpr std::uint64_t kLarge = 4 << 20;
  for (const std::vector<int>& hosts :
       {std::vector<int>{0, 0, 0, 0, 1, 1, 1, 1}, {0, 1, 0, 1, 0, 1, 0, 1}, {0, 0, 1, 2, 2, 2}}) {
    const CostGround ground{static_cast<int>(hosts.size()), Load::spare, kSegment, hosts};
    ChoiceTable table(model, ground);
    const auto first = [&](Collective collective, std::uint64_t bytes) {
      return std::string(table.ranking(collective, Medium::links, bytes).front()->name);
    };
    // Of each host's data its half must leave it, and as much come in.
    const int count = 1 + *std::max_element(hosts.begin(), hosts.end());
    const double least = 2.0 * (count - 1) / count * kLarge * 8e-9;
    const Algorithm& chosen = *table.ranking(Collective::all_reduce, Medium::links, kLarge).front();
    EXPECT_LT(predict_call(*model, ground, chosen, kLarge), least * 1.2) << chosen.name;
    // With hosts alike others cross the network as rarely.
    if (count == 2) continue;
    EXPECT_EQ(first(Collective::all_reduce, kLarge), "hierarchical");
    EXPECT_EQ(first(Collective::all_reduce, 64), "leaders");
    EXPECT_EQ(first(Collective::all_to_all, 64), "hierarchical");
    for (const Algorithm* row : table.ranking(Collective::all_reduce, Medium::links, kLarge))
      EXPECT_GE(predict_call(*model, ground, *row, kLarge), least) << row->name;
  }
}

TEST(ChoiceTable, OneTableForCommunicatorsAlike) {
  const CostGround ground{3, Load::spare, kSegment};
  const auto table = choice_table(builtin_model(), ground);
  EXPECT_EQ(table, choice_table(builtin_model(), ground));
  EXPECT_NE(table, choice_table(builtin_model(), {4, Load::spare, kSegment}));
}

TEST(Choose, LeadersCarryWhatTwoHostsExchangeInOneMessage) {
  const auto chosen = [](const std::vector<int>& hosts, std::uint64_t bytes) {
    const CostGround ground{static_cast<int>(hosts.size()), Load::spare, kSegment, hosts};
    ChoiceTable table(plain_model(), ground);
    CallFacts facts;
    facts.collective = Collective::all_reduce;
    facts.type = DataType::f32;
    facts.count = bytes / 4;
    const auto selection = choose(facts, typical_shape(Collective::all_reduce, ground, bytes),
                                  {static_cast<int>(hosts.size()), false, true}, table);
    EXPECT_TRUE(selection.ok()) << selection.status().message();
    return std::string(selection.value().links->name);
  };
  EXPECT_EQ(chosen({0, 0, 1, 1}, 64 << 10), "leaders");
  EXPECT_EQ(chosen({0, 0, 1, 1}, 128 << 10), "hierarchical");
  EXPECT_EQ(chosen({0, 0, 1, 1, 2, 2}, 32 << 10), "leaders");
  EXPECT_EQ(chosen({0, 0, 1, 1, 2, 2}, 64 << 10), "hierarchical");
}

/// Of three ranks that share memory, by `model`.
Selection chosen_by(const std::shared_ptr<CostModel>& model, Collective collective, std::uint64_t bytes) {
  ChoiceTable table(model, {3, Load::spare, kSegment});
  CallFacts facts;
  facts.collective = collective;
  facts.type = DataType::f32;
  facts.count = bytes / 4;
  const auto selection =
      choose(facts, typical_shape(collective, table.ground(), bytes), {3, true, true}, table);
  EXPECT_TRUE(selection.ok() && selection.value().staged != nullptr);
  return selection.value();
}

TEST(Choose, LongCallsOnPrivateMemoryMayBePulled) {
  const auto pulls = [](Collective collective, std::uint64_t bytes) {
    const Selection selection = chosen_by(plain_model(), collective, bytes);
    EXPECT_FALSE(selection.pull_untried);
    return selection.pulled != nullptr;
  };
  EXPECT_TRUE(pulls(Collective::broadcast, 1 << 20));
  EXPECT_TRUE(pulls(Collective::all_gather, 16 << 10));
  EXPECT_FALSE(pulls(Collective::all_gather, (16 << 10) - 4));
  EXPECT_FALSE(pulls(Collective::all_reduce, 1 << 20)) << "sums are not copied";
}

TEST(Choose, WhatIsAskedForByNameIsPulledWithoutATrial) {
  const auto model = plain_model();
  model->rules = *AlgorithmRules::parse("all_gather:*=pulled/direct");
  const Selection selection = chosen_by(model, Collective::all_gather, 1 << 20);
  EXPECT_TRUE(selection.pulled != nullptr && selection.pull_untried);
}

TEST(Choose, TheModelsOverridesGoBeforeItsPredictions) {
  const auto model = plain_model();
  model->rules = *AlgorithmRules::parse("all_reduce:0-1k=direct,1k-inf=staged/two_shot");
  const Capabilities sockets{3, false, 40};
  ChoiceTable table(model, {3, Load::spare, kSegment});
  CallFacts facts;
  facts.collective = Collective::all_reduce;
  facts.type = DataType::f32;
  const auto chosen = [&](std::uint64_t count) {
    facts.count = count;
    Shape shape = typical_shape(Collective::all_reduce, table.ground(), count * 4);
    const auto selection = choose(facts, shape, sockets, table);
    EXPECT_TRUE(selection.ok()) << selection.status().message();
    return std::string(selection.value().links->name);
  };
  EXPECT_EQ(chosen(10), "direct");
  // An override that these ranks cannot follow is passed over.
  EXPECT_FALSE(chosen(1000).empty());
}

}  // namespace
}  // namespace lockstep::internal
