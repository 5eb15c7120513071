// The cost model as a text: there and back, and what is refused.
#include "collectives/select/cost_model.hpp"

#include <gtest/gtest.h>

#include "collectives/select/model_source.hpp"

namespace lockstep::internal {
namespace {

CostModel example() {
  CostModel model = *builtin_model();
  model.fingerprint = MachineFingerprint{"a processor", "6.1", 8};
  model.calibrated_ranks = 4;
  model.overrides = "all_reduce:0-1k=links/direct";
  model.rules = *AlgorithmRules::parse(model.overrides);
  model.non_temporal_bytes = 123456;
  model.spin_microseconds = 44;
  model.tcp_sockets = 2;
  LinkCost& tcp = model.cost(LinkClass::tcp, Load::spare);
  tcp.alpha = exact_cost(3.3e-6);
  tcp.regimes[1].beta = exact_cost(0.123456789e-9);
  model.corrections.clear();
  Correction& ring = model.corrections[{Load::crowded, LinkClass::tcp, Collective::all_reduce, "ring"}];
  ring.add(6, 0.9);
  ring.add(20, 1.7);
  model.network = coarse({24'000, 8'200, 70'000, 300});
  return model;
}

std::string refusal(const std::string& text) {
  const auto model = parse_model(text);
  EXPECT_FALSE(model.ok()) << text;
  return model.status().message();
}

TEST(CostModel, SurvivesATripThroughAText) {
  const CostModel model = example();
  const auto back = parse_model(to_json(model));
  ASSERT_TRUE(back.ok()) << back.status().message();
  const CostModel& read = back.value();
  EXPECT_EQ(read.fingerprint, model.fingerprint);
  EXPECT_EQ(read.calibrated_ranks, model.calibrated_ranks);
  EXPECT_EQ(read.links, model.links);
  EXPECT_EQ(read.corrections, model.corrections);
  EXPECT_EQ(read.overrides, model.overrides);
  EXPECT_EQ(read.rules.name_for(Collective::all_reduce, 5), "links/direct");
  EXPECT_EQ(read.non_temporal_bytes, model.non_temporal_bytes);
  EXPECT_EQ(read.spin_microseconds, model.spin_microseconds);
  EXPECT_EQ(read.tcp_sockets, model.tcp_sockets);
  EXPECT_EQ(read.network, model.network);
  EXPECT_EQ(to_json(read), to_json(model));
}

TEST(CostModel, TheBuiltInOneIsWhole) {
  const auto model = builtin_model();
  EXPECT_FALSE(model->fingerprint) << "it is of no particular machine";
  EXPECT_GT(model->cost(LinkClass::tcp, Load::spare).regimes[0].beta, 0);
  EXPECT_GT(model->cost(LinkClass::registered, Load::spare).sync, 0);
  EXPECT_GT(model->cost(LinkClass::staged, Load::crowded).sync, 0);
  EXPECT_LT(builtin_model_text().size(), kMaxModelBytes);
}

TEST(CostModel, WhatATextLeavesOutIsTakenFromTheBuiltInOne) {
  const auto model = parse_model(R"({"schema": "lockstep-tuning", "version": 1})");
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_EQ(model.value().links, builtin_model()->links);
  EXPECT_EQ(model.value().corrections, builtin_model()->corrections);
  EXPECT_FALSE(model.value().fingerprint);
}

TEST(CostModel, RefusesWhatItCannotUse) {
  EXPECT_NE(refusal("{\"schema\"").find("parse error"), std::string::npos);
  EXPECT_NE(refusal("{}").find("schema"), std::string::npos);
  EXPECT_NE(refusal(R"({"schema": "lockstep-tuning", "version": 2})").find("version 2"), std::string::npos);
  const std::string head = R"({"schema": "lockstep-tuning", "version": 1, )";
  EXPECT_NE(refusal(head + R"("overrides": "all_reduce:*=rnig"})").find("did you mean ring?"),
            std::string::npos);
  EXPECT_NE(refusal(head + R"("links": [{"class": "pigeon", "crowded": false}]})").find("pigeon"),
            std::string::npos);
  EXPECT_NE(refusal(head + R"("links": [{"class": "tcp", "crowded": false, "call": -1}]})").find("call"),
            std::string::npos);
  EXPECT_NE(
      refusal(
          head +
          R"("corrections": [{"class": "tcp", "crowded": false, "collective": "all_recude", "by_log2": []}]})")
          .find("all_recude"),
      std::string::npos);
}

TEST(CostModel, CorrectionsGoWithTheCostsThatTheyWereMeasuredAgainst) {
  const auto model = parse_model(R"({"schema": "lockstep-tuning", "version": 1, "links": []})");
  ASSERT_TRUE(model.ok()) << model.status().message();
  EXPECT_TRUE(model.value().corrections.empty());
}

TEST(CostModel, NamesThePlaceOfWhatItCannotUse) {
  const std::string head = R"({"schema": "lockstep-tuning", "version": 1, )";
  EXPECT_EQ(refusal(head + R"("links": [{"class": "tcp", "crowded": false}]})"),
            "links[0]: key 'call' not found");
  EXPECT_EQ(refusal(head + R"("overides": ""})"), "there is no entry 'overides' (did you mean overrides?)");
  const std::string correction =
      R"("corrections": [{"class": "tcp", "crowded": false, "collective": "all_reduce", "by_log2": [],)";
  EXPECT_NE(
      refusal(head + correction + R"( "algorithm": "rnig"}]})").find("corrections[0]: algorithm \"rnig\""),
      std::string::npos);
  for (const char* size : {"-1", "64", "4294967296", "-9223372036854775808"}) {
    EXPECT_EQ(
        refusal(
            head +
            R"("corrections": [{"class": "tcp", "crowded": false, "collective": "all_reduce", "algorithm": "ring", "by_log2": [[)" +
            size + ", 1]]}]}"),
        std::string("corrections[0]: by_log2 has no size of 2^") + size + " bytes");
  }
  EXPECT_NE(refusal(R"({"schema": "lockstep-tuning", "version": 4294967297})").find("version 4294967297"),
            std::string::npos);
}

TEST(CostModel, TakesAFileOfBeforeThatSaysWhatIsPulled) {
  EXPECT_TRUE(parse_model(R"({"schema": "lockstep-tuning", "version": 1, "pulls": [{"from": 1}]})").ok());
}

TEST(CostModel, RefusesWhatIsNoCountWhereACountIsWanted) {
  const std::string head = R"({"schema": "lockstep-tuning", "version": 1, )";
  EXPECT_EQ(refusal(head + R"("tcp_sockets": 4294967298})"),
            "tcp_sockets is not a whole number from 0 to 2147483647");
  for (const char* number : {"-1", "2.5", "1e300", "18446744073709551616", "\"2\"", "[]"}) {
    for (const char* key : {"tcp_sockets", "spin_microseconds", "non_temporal_bytes"}) {
      const std::string text = head + '"' + key + "\": " + number + "}";
      EXPECT_NE(refusal(text).find(std::string(key) + " is not a whole number"), std::string::npos) << text;
    }
  }
  for (const char* number : {"2.5", "1e300", "18446744073709551616", "true"}) {
    const std::string size = R"("corrections": [{"by_log2": [[)" + std::string(number) + ", 1]]}]}";
    EXPECT_EQ(refusal(head + size), "corrections[0]: by_log2 has a size that is not a whole number")
        << number;
  }
}

TEST(CostModel, IsNotReadToTheEndOfTheStack) {
  const std::size_t half = kMaxModelBytes / 2 - 100;
  const std::string deep = std::string(half, '[') + std::string(half, ']');
  for (const char* key : {"schema", "version", "fingerprint", "tcp_sockets", "overrides", "links"})
    refusal(R"({"schema": "lockstep-tuning", "version": 1, ")" + std::string(key) + "\": " + deep + "}");
}

TEST(Correction, LiesBetweenItsBoundsAndItsNeighbours) {
  Correction correction;
  EXPECT_EQ(correction.at(10), 1);
  correction.add(4, 0.01);
  correction.add(8, 100);
  EXPECT_EQ(correction.at(0), Correction::kLeast);
  EXPECT_EQ(correction.at(4), Correction::kLeast);
  EXPECT_EQ(correction.at(6), (Correction::kLeast + Correction::kMost) / 2);
  EXPECT_EQ(correction.at(30), Correction::kMost);
}

}  // namespace
}  // namespace lockstep::internal
