// The grammar of LOCKSTEP_ALGORITHMS, and what it refuses.
#include "collectives/select/names.hpp"

#include <gtest/gtest.h>

namespace lockstep::internal {
namespace {

std::string refusal(std::string_view text) {
  const auto rules = AlgorithmRules::parse(text);
  EXPECT_FALSE(rules.ok()) << text;
  EXPECT_EQ(rules.status().code(), ErrorCode::configuration);
  return rules.status().message();
}

TEST(AlgorithmRules, TheFirstRangeThatHoldsTheSizeNamesTheAlgorithm) {
  const auto rules = AlgorithmRules::parse("all_reduce:0-16k=one_shot,16k-inf=ring;broadcast:*=binomial");
  ASSERT_TRUE(rules.ok()) << rules.status().message();
  const auto name = [&](Collective collective, std::uint64_t bytes) {
    return rules.value().name_for(collective, bytes);
  };
  EXPECT_EQ(name(Collective::all_reduce, 0), "one_shot");
  EXPECT_EQ(name(Collective::all_reduce, 16383), "one_shot");
  EXPECT_EQ(name(Collective::all_reduce, 16384), "ring");
  EXPECT_EQ(name(Collective::all_reduce, std::uint64_t{1} << 40), "ring");
  EXPECT_EQ(name(Collective::broadcast, 1), "binomial");
  EXPECT_EQ(name(Collective::all_gather, 1), "");
}

TEST(AlgorithmRules, AnEmptyTextHasNoRules) {
  const auto rules = AlgorithmRules::parse("");
  ASSERT_TRUE(rules.ok());
  EXPECT_TRUE(rules.value().empty());
}

TEST(AlgorithmRules, AMediumInFrontDecides) {
  EXPECT_TRUE(AlgorithmRules::parse("all_reduce:*=registered/fused;broadcast:*=links/direct").ok());
  refusal("all_reduce:*=registered/ring");
}

TEST(AlgorithmRules, AnUnknownNameIsAnErrorThatNamesTheNearestOne) {
  const std::string text = refusal("all_reduce:0-16k=one_shot,16k-inf=rign");
  EXPECT_NE(text.find("LOCKSTEP_ALGORITHMS"), std::string::npos) << text;
  EXPECT_NE(text.find("\"rign\" is unknown"), std::string::npos) << text;
  EXPECT_NE(text.find("did you mean ring?"), std::string::npos) << text;
  EXPECT_NE(refusal("all_recude:*=ring").find("did you mean all_reduce?"), std::string::npos);
}

TEST(AlgorithmRules, TheNearestNameIsLookedForInAllMedia) {
  EXPECT_NE(refusal("all_reduce:*=two_shto").find("did you mean two_shot?"), std::string::npos);
  EXPECT_NE(refusal("all_reduce:*=fusd").find("did you mean fused?"), std::string::npos);
  EXPECT_NE(refusal("all_reduce:*=registered/fusd").find("did you mean fused?"), std::string::npos);
  EXPECT_NE(refusal("all_reduce:*=stagd/two_shot").find("'stagd/'"), std::string::npos);
}

TEST(AlgorithmRules, AnAlgorithmOfAnotherCollectiveIsAnError) { refusal("barrier:*=ring"); }

TEST(AlgorithmRules, WhatIsNoRangeIsAnError) {
  for (const char* text : {"all_reduce", "all_reduce:", "all_reduce:0-16x=ring", "all_reduce:16k-0=ring",
                           "all_reduce:5-5=ring", "all_reduce:ring", "all_reduce:0-16k"})
    refusal(text);
}

TEST(AlgorithmRules, AnErrorNamesWhereTheTextIsFrom) {
  const auto rules = AlgorithmRules::parse("all_reduce:*=rnig", "overrides");
  EXPECT_EQ(rules.status().message().find("overrides: "), 0u) << rules.status().message();
}

}  // namespace
}  // namespace lockstep::internal
