// The verdict on the ranks' parameter lists: every rank must name the same culprit, in the same words.
#include "ddp/parameter_list.hpp"

#include <gtest/gtest.h>

namespace lockstep::internal {
namespace {

float g_value[64];

std::vector<Parameter> model() {
  return {{"fc1.weight", DataType::f32, {8, 4}, g_value, nullptr},
          {"fc1.bias", DataType::f32, {4}, g_value, nullptr},
          {"fc2.weight", DataType::f32, {4, 2}, g_value, nullptr}};
}

ParameterList list_of(const std::vector<Parameter>& parameters, const ReducerOptions& options = {}) {
  return make_list(parameters, options);
}

/// The verdict over a world of four in which `rank` has `odd` and the others have model().
Status verdict(std::size_t rank, const ParameterList& odd, int self = 1) {
  std::vector<ParameterList> lists(4, list_of(model()));
  lists[rank] = odd;
  return compare(lists, self);
}

TEST(ParameterList, AcceptsEqualLists) { EXPECT_TRUE(verdict(0, list_of(model())).ok()); }

TEST(ParameterList, NamesTwoOfOneName) {
  auto odd = model();
  odd[2].name = "fc1.bias";
  const Status status = verdict(2, list_of(odd), 2);
  EXPECT_EQ(status.code(), ErrorCode::invalid_argument);
  EXPECT_EQ(status.message(),
            "parameter 2, \"fc1.bias\" f32 [4, 2], has the name of parameter 1; give each a name of "
            "its own");
}

TEST(ParameterList, NamesWhatIsNotAligned) {
  auto odd = model();
  odd[1].value = reinterpret_cast<char*>(g_value) + 2;
  EXPECT_EQ(verdict(2, list_of(odd), 2).message(),
            "parameter 1, \"fc1.bias\" f32 [4], has a value that is not aligned for its type");
  odd[1].type = DataType::bf16;
  odd[0].gradient = odd[1].gradient = odd[2].gradient = reinterpret_cast<char*>(g_value) + 2;
  odd[0].shape = odd[2].shape = {0};
  EXPECT_EQ(list_of(odd, {.gradients_as_views = false}).problem,
            "parameter 0, \"fc1.weight\" f32 [0], has a gradient that is not aligned for its type");
  odd[0].gradient = odd[2].gradient = nullptr;
  EXPECT_EQ(list_of(odd, {.gradients_as_views = false}).problem, "");
  odd = model();
  odd[1].type = DataType::complex64;
  odd[1].value = g_value + 1;  // Aligned for its parts.
  EXPECT_EQ(list_of(odd).problem, "");
}

TEST(ParameterList, NamesAShape) {
  auto odd = model();
  odd[1].shape = {5};
  const Status status = verdict(2, list_of(odd));
  EXPECT_EQ(status.code(), ErrorCode::mismatch);
  EXPECT_EQ(status.culprit(), 2);
  EXPECT_EQ(status.message(),
            "parameter 1 differs on rank 2, which has \"fc1.bias\" f32 [5]; rank 0 has "
            "\"fc1.bias\" f32 [4]; build the same model on every rank");
}

TEST(ParameterList, NamesRankZeroWhenItIsTheOddOne) {
  auto odd = model();
  odd[2].type = DataType::bf16;
  const Status status = verdict(0, list_of(odd));
  EXPECT_EQ(status.culprit(), 0);
  EXPECT_NE(
      status.message().find("on rank 0, which has \"fc2.weight\" bf16 [4, 2]; rank 1 has \"fc2.weight\" f32"),
      std::string::npos)
      << status.message();
}

TEST(ParameterList, NamesAMissingAndASurplusParameter) {
  auto odd = model();
  odd.pop_back();
  EXPECT_NE(verdict(3, list_of(odd))
                .message()
                .find("parameter 2 differs on rank 3, which has only 2 parameters; "
                      "rank 0 has \"fc2.weight\" f32 [4, 2]"),
            std::string::npos);
  odd = model();
  odd.push_back({"fc3", DataType::f64, {}, g_value, nullptr});
  EXPECT_NE(verdict(3, list_of(odd))
                .message()
                .find("parameter 3 differs on rank 3, which has \"fc3\" f64 []; rank 0 "
                      "has only 3 parameters"),
            std::string::npos);
}

TEST(ParameterList, NamesTheFirstParameterOfSeveralDeviatingRanks) {
  std::vector<ParameterList> lists(5, list_of(model()));
  lists[1].parameters[2] = "x";
  lists[3].parameters[1] = "y";
  const Status status = compare(lists, 0);
  EXPECT_EQ(status.culprit(), 3);
  EXPECT_NE(status.message().find("parameter 1 differs on rank 3"), std::string::npos);
}

TEST(ParameterList, NamesOptions) {
  const Status status = verdict(1, list_of(model(), {.bucket_bytes = 7, .average = false}));
  EXPECT_EQ(status.code(), ErrorCode::mismatch);
  EXPECT_EQ(status.culprit(), 1);
  EXPECT_NE(
      status.message().find("options differ on rank 1, which has bucket_bytes 7, first_bucket_bytes 1048576, "
                            "sum, no hook; rank 0 has bucket_bytes 4194304"),
      std::string::npos)
      << status.message();
}

TEST(ParameterList, LetsRanksChooseViewsThemselves) {
  auto without_views = model();
  for (Parameter& p : without_views) p.gradient = g_value;
  EXPECT_TRUE(verdict(1, list_of(without_views, {.gradients_as_views = false})).ok());
}

/// A problem of one rank is an error of its own there, and names it elsewhere.
void expect_problem(const std::vector<Parameter>& bad, const ReducerOptions& options,
                    const std::string& text) {
  const ParameterList odd = list_of(bad, options);
  EXPECT_NE(odd.problem.find(text), std::string::npos) << odd.problem;
  const Status there = verdict(2, odd, 2);
  EXPECT_EQ(there.code(), ErrorCode::invalid_argument);
  EXPECT_EQ(there.message(), odd.problem);
  const Status elsewhere = verdict(2, odd, 0);
  EXPECT_EQ(elsewhere.code(), ErrorCode::refused);
  EXPECT_EQ(elsewhere.culprit(), 2);
  EXPECT_EQ(elsewhere.message(), "rank 2 cannot start: " + odd.problem);
}

TEST(ParameterList, NamesUnusableParameters) {
  expect_problem({}, {}, "there are no parameters");
  auto bad = model();
  bad[1].value = nullptr;
  expect_problem(bad, {}, "parameter 1, \"fc1.bias\" f32 [4], has a null value");
  bad = model();
  expect_problem(bad, {.gradients_as_views = false},
                 "parameter 0, \"fc1.weight\" f32 [8, 4], has a null gradient");
  bad[0].gradient = bad[0].value;
  expect_problem(bad, {},
                 "parameter 0, \"fc1.weight\" f32 [8, 4], has memory for its gradient, which nothing reads");
  bad = model();
  bad[2].type = DataType::i32;
  expect_problem(bad, {}, "parameter 2, \"fc2.weight\" i32 [4, 2], has a type without gradients");
  bad[2].type = static_cast<DataType>(99);
  expect_problem(bad, {}, "has a type that lockstep does not know");
  bad = model();
  bad[0].shape = {std::size_t{1} << 40, std::size_t{1} << 40};
  expect_problem(bad, {}, "more bytes than the address space");
}

TEST(ParameterList, AcceptsNullPointersOfEmptyParameters) {
  EXPECT_EQ(
      list_of({{"empty", DataType::f32, {0, 3}, nullptr, nullptr}}, {.gradients_as_views = false}).problem,
      "");
}

TEST(ParameterList, ReadsBackWhatItWrote) {
  ParameterList list = list_of(model());
  list.problem = std::string("zero\0inside", 11);
  auto back = parse(serialise(list));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, list);
}

TEST(ParameterList, RefusesBytesThatAreCutShort) {
  const std::string bytes = serialise(list_of(model()));
  const ParameterList whole = *parse(bytes);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    auto list = parse(std::string_view(bytes).substr(0, n));
    // A cut between two parameters reads as a shorter list; any other is an error.
    if (list.ok()) {
      EXPECT_LT(list->parameters.size(), whole.parameters.size());
    } else {
      EXPECT_EQ(list.status().code(), ErrorCode::internal);
    }
  }
  std::string hostile = bytes;
  hostile.replace(0, 4, std::string(4, '\xff'));
  EXPECT_FALSE(parse(hostile).ok());
}

}  // namespace
}  // namespace lockstep::internal
