// What is said about a step: the verdict on all ranks' records, on their replicas, and the report.
#include <gtest/gtest.h>

#include "ddp/ready_order.hpp"
#include "ddp/replica_check.hpp"
#include "ddp/step_clock.hpp"
#include "ddp/step_record.hpp"

namespace lockstep::internal {
namespace {

std::vector<Parameter> small_model() {
  return {{"a", DataType::f32, {8}, nullptr, nullptr},
          {"b", DataType::f32, {4}, nullptr, nullptr},
          {"c", DataType::bf16, {}, nullptr, nullptr}};
}

std::vector<StepRecord> records(std::vector<std::pair<Trouble, std::uint32_t>> troubles) {
  std::vector<StepRecord> all;
  for (const auto& [trouble, parameter] : troubles) all.push_back({trouble, parameter, 0, 0});
  return all;
}

TEST(StepVerdict, IsGoodWhenAllAre) {
  EXPECT_TRUE(judge(records({{Trouble::none, 0}, {Trouble::none, 2}}), {}, small_model()).ok());
}

TEST(StepVerdict, NamesTheLowestRankInTrouble) {
  const Status status = judge(
      records({{Trouble::none, 0}, {Trouble::not_finite, 2}, {Trouble::marked_twice, 1}}), {}, small_model());
  EXPECT_EQ(status.culprit(), 1);
  EXPECT_EQ(status.message(),
            "rank 1 has an infinity or a NaN in the gradient of \"c\" (2); leave this step out; a lower loss "
            "scale or learning rate avoids it");
}

TEST(StepVerdict, NamesAllRanksThatMissedGradients) {
  const std::vector<std::vector<std::size_t>> missing{{}, {0, 2}, {1}};
  const Status status =
      judge(records({{Trouble::none, 0}, {Trouble::not_marked, 0}, {Trouble::not_marked, 1}}), missing,
            small_model());
  EXPECT_EQ(status.culprit(), 1);
  EXPECT_EQ(
      status.message().rfind("rank 1 did not mark 2 of 3 gradients: \"a\" (0), \"c\" (2); rank 2 did not "
                             "mark 1 of 3 gradients: \"b\" (1); mark every gradient before wait()",
                             0),
      0u)
      << status.message();
}

TEST(StepVerdict, KeepsTheFirstTrouble) {
  TroubleNote note;
  StepRecord record;
  note.write_to(record);
  EXPECT_EQ(record.trouble, Trouble::none);
  note.set(Trouble::marked_twice, 7);
  note.set(Trouble::not_marked, 1);
  note.write_to(record);
  EXPECT_EQ(record.trouble, Trouble::marked_twice);
  EXPECT_EQ(record.parameter, 7u);
  note.clear();
  note.write_to(record);
  EXPECT_EQ(record.trouble, Trouble::none);
}

TEST(ReplicaVerdict, NamesTheFirstTensorAndTheRankThatDeviates) {
  const std::vector<std::uint64_t> equal{1, 2, 3, 1, 2, 3, 1, 2, 3};
  EXPECT_TRUE(compare_replicas(equal, small_model()).ok());
  auto odd = equal;
  odd[1] = 9;  // Rank 0 is the odd one.
  odd[8] = 9;
  const Status status = compare_replicas(odd, small_model());
  EXPECT_EQ(status.code(), ErrorCode::mismatch);
  EXPECT_EQ(status.culprit(), 0);
  EXPECT_EQ(
      status.message().rfind("the replicas differ: parameter 1, \"b\" f32 [4], on rank 0 is not what", 0), 0u)
      << status.message();
}

TEST(Report, IsOneSentence) {
  using std::chrono::microseconds;
  StepStatistics s;
  EXPECT_EQ(report_of(s, 0), "no step has ended yet");
  s.step = 312;
  s.duration = microseconds(41'800);
  s.communication = microseconds(12'300);
  s.exposed = microseconds(1'107);
  s.latest_rank = 5;
  s.waited_for_latest = microseconds(1'100);
  EXPECT_EQ(report_of(s, 0),
            "step 312: 41.8 ms; communication 12.3 ms, 91 % hidden; waited 1.1 ms for rank 5");
  s.latest_rank = 0;
  s.waited_for_latest = {};
  EXPECT_EQ(report_of(s, 0), "step 312: 41.8 ms; communication 12.3 ms, 91 % hidden; waited for no rank");
}

TEST(ReadyOrder, KeepsTheNotedOrderAndAppendsTheOthers) {
  ReadyOrder order;
  order.observe(5);
  for (const std::size_t i : {3u, 0u, 1u}) order.note(i);
  order.restart();
  for (const std::size_t i : {2u, 4u, 0u}) order.note(i);
  EXPECT_EQ(order.take(), (std::vector<std::size_t>{2, 4, 0, 3, 1}));
  EXPECT_FALSE(order.observing());
  order.note(1);  // No longer of interest.
}

}  // namespace
}  // namespace lockstep::internal
