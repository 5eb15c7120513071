// plan_buckets: order, caps, types and offsets, on chosen models and on random ones.
#include "ddp/bucket_plan.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "lockstep/ddp.hpp"

namespace lockstep {
namespace {

Parameter parameter(std::vector<std::size_t> shape, DataType type = DataType::f32) {
  return {"p", type, std::move(shape), nullptr, nullptr};
}

std::size_t elements(const Parameter& p) {
  std::size_t n = 1;
  for (const std::size_t d : p.shape) n *= d;
  return n;
}

std::vector<std::vector<std::size_t>> members(const BucketPlan& plan) {
  std::vector<std::vector<std::size_t>> all;
  for (const auto& bucket : plan.buckets) {
    all.emplace_back();
    for (const GradientPart& part : bucket.parts) all.back().push_back(part.parameter);
  }
  return all;
}

std::vector<std::size_t> offsets(const BucketPlan::Bucket& bucket) {
  std::vector<std::size_t> all;
  for (const GradientPart& part : bucket.parts) all.push_back(part.offset);
  return all;
}

using Members = std::vector<std::vector<std::size_t>>;

TEST(BucketPlan, TakesCapsWithoutLimit) {
  constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  const std::vector<Parameter> model{parameter({1, 2u << 20}, DataType::f8e4m3)};
  const BucketPlan plan = plan_buckets(model, {.bucket_bytes = kNone});
  ASSERT_EQ(plan.buckets.size(), 1u);
  EXPECT_EQ(plan.buckets[0].count, 2u << 20);
}

TEST(BucketPlan, RefusesParametersThatAreTooLargeTogether) {
  const std::vector<Parameter> model(3, parameter({std::size_t{1} << 60}));
  EXPECT_THROW(plan_buckets(model, {.split_large = false}), Error);
}

TEST(BucketPlan, TakesParametersFromTheLastToTheFirst) {
  const std::vector<Parameter> model{parameter({4}), parameter({4}), parameter({4})};
  EXPECT_EQ(members(plan_buckets(model, {})), (Members{{2, 1, 0}}));
}

TEST(BucketPlan, KeepsTheFirstBucketSmall) {
  const std::size_t mib = (1u << 20) / sizeof(float);
  const std::vector<Parameter> model{parameter({2 * mib}), parameter({2 * mib}), parameter({mib / 2}),
                                     parameter({mib / 2})};
  EXPECT_EQ(members(plan_buckets(model, {})), (Members{{3, 2}, {1, 0}}));
}

TEST(BucketPlan, ClosesABucketBeforeItExceedsItsCap) {
  const ReducerOptions options{.bucket_bytes = 256, .first_bucket_bytes = 128};
  const std::vector<Parameter> model{parameter({16}), parameter({48}), parameter({32}), parameter({32})};
  EXPECT_EQ(members(plan_buckets(model, options)), (Members{{3}, {2}, {1, 0}}));
}

TEST(BucketPlan, GivesALargeParameterABucketOfItsOwn) {
  const ReducerOptions options{.bucket_bytes = 256, .first_bucket_bytes = 256};
  const std::vector<Parameter> model{parameter({4}), parameter({1000}), parameter({4}), parameter({1000}),
                                     parameter({4})};
  // The small ones share a bucket, which is full only when the last of them is.
  EXPECT_EQ(members(plan_buckets(model, options)), (Members{{3}, {1}, {4, 2, 0}}));
}

TEST(BucketPlan, NeverMixesTypes) {
  const std::vector<Parameter> model{parameter({4}, DataType::bf16), parameter({4}),
                                     parameter({4}, DataType::bf16), parameter({4})};
  const BucketPlan plan = plan_buckets(model, {});
  EXPECT_EQ(members(plan), (Members{{3, 1}, {2, 0}}));
  EXPECT_EQ(plan.buckets[0].type, DataType::f32);
  EXPECT_EQ(plan.buckets[1].type, DataType::bf16);
}

TEST(BucketPlan, AlignsOffsets) {
  const std::vector<Parameter> model{parameter({5}), parameter({17}), parameter({1})};
  const auto bucket = plan_buckets(model, {}).buckets.at(0);
  EXPECT_EQ(offsets(bucket), (std::vector<std::size_t>{0, 16, 48}));
  EXPECT_EQ(bucket.count, 53u);
}

TEST(BucketPlan, CountsScalarsAndEmptyTensors) {
  const std::vector<Parameter> model{parameter({}), parameter({3, 0, 7}), parameter({2})};
  const auto bucket = plan_buckets(model, {}).buckets.at(0);
  EXPECT_EQ(offsets(bucket), (std::vector<std::size_t>{0, 16, 16}));
  EXPECT_EQ(bucket.count, 17u);
}

/// With what is left of it a bucket begins, and it ends there too: nothing of the next one belongs to it.
TEST(BucketPlan, LeavesFrozenParametersOutAtBothEnds) {
  const std::vector<Parameter> model(5, parameter({16}));
  const BucketPlan plan = internal::without_frozen(plan_buckets(model, {}), {true, false, true, false, true});
  ASSERT_EQ(members(plan), (Members{{3, 1}}));
  EXPECT_EQ(offsets(plan.buckets[0]), (std::vector<std::size_t>{0, 32}));
  EXPECT_EQ(plan.buckets[0].count, 48u);
}

TEST(BucketPlan, RefusesASizeThatOverflows) {
  const std::size_t huge = std::numeric_limits<std::size_t>::max() / 2;
  const std::vector<Parameter> model{parameter({huge, 3})};
  try {
    plan_buckets(model, {});
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("more bytes than the address space"), std::string::npos);
  }
  const std::vector<Parameter> empty{parameter({huge, 3, 0})};
  EXPECT_EQ(plan_buckets(empty, {}).buckets.at(0).count, 0u);
}

TEST(BucketPlan, SplitsALargeParameterIntoEqualPieces) {
  const std::size_t page = 4096 / sizeof(float);
  ReducerOptions options{.bucket_bytes = 4 * 4096, .first_bucket_bytes = 4096};
  const std::vector<Parameter> model{parameter({8}), parameter({10 * page + 5}), parameter({8})};
  const BucketPlan plan = plan_buckets(model, options);
  EXPECT_EQ(members(plan), (Members{{1}, {1}, {1}, {2, 0}}));
  std::size_t first = 0;
  for (const std::size_t count : {4 * page, 4 * page, 2 * page + 5}) {
    const std::size_t b = first / (4 * page);
    EXPECT_EQ(plan.buckets[b].parts, (std::vector<GradientPart>{{1, 0, first, count}}));
    EXPECT_EQ(plan.buckets[b].count, count);
    first += count;
  }
  options.split_large = false;
  EXPECT_EQ(members(plan_buckets(model, options)), (Members{{1}, {2, 0}}));
}

TEST(BucketPlan, CutsPiecesOfWholePagesBelowTheCap) {
  const ReducerOptions options{.bucket_bytes = 10'000, .first_bucket_bytes = 5'000};
  const BucketPlan plan = plan_buckets(std::vector{parameter({5'000})}, options);
  ASSERT_EQ(plan.buckets.size(), 3u);
  for (const auto& bucket : plan.buckets) EXPECT_LE(bucket.count * sizeof(float), 8'192u);
}

/// A cap below a page, and a gradient that comes first and is larger than the first bucket's.
TEST(BucketPlan, ExceedsACapOnlyAsItSays) {
  const BucketPlan tiny =
      plan_buckets(std::vector{parameter({2'000})}, {.bucket_bytes = 100, .first_bucket_bytes = 100});
  ASSERT_EQ(tiny.buckets.size(), 2u);
  EXPECT_EQ(tiny.buckets[0].count * sizeof(float), 4'096u);
  const BucketPlan first = plan_buckets(std::vector{parameter({3u << 18})}, {});
  ASSERT_EQ(first.buckets.size(), 1u);
  EXPECT_EQ(first.buckets[0].count * sizeof(float), 3u << 20);
}

/// Parts lie one after the other, aligned, without more than the gaps that this needs.
void check_bucket(const std::vector<Parameter>& model, const BucketPlan::Bucket& bucket) {
  ASSERT_FALSE(bucket.parts.empty());
  std::size_t end = 0;
  for (std::size_t k = 0; k < bucket.parts.size(); ++k) {
    const GradientPart& part = bucket.parts[k];
    EXPECT_EQ(model[part.parameter].type, bucket.type);
    EXPECT_EQ(part.offset * size_of(bucket.type) % BucketPlan::kAlignment, 0u);
    EXPECT_GE(part.offset, end);
    EXPECT_LT(part.offset - end, BucketPlan::kAlignment);
    end = part.offset + part.count;
    if (k > 0) {
      EXPECT_LT(part.parameter, bucket.parts[k - 1].parameter);
    }
  }
  EXPECT_EQ(bucket.count, end);
}

/// Everything the contract promises, of any plan.
void check_plan(const std::vector<Parameter>& model, const ReducerOptions& options) {
  const BucketPlan plan = plan_buckets(model, options);
  const std::size_t cap = std::max(options.bucket_bytes, options.first_bucket_bytes);
  const std::size_t piece = std::max<std::size_t>(options.bucket_bytes / 4096 * 4096, 4096);
  std::vector<std::size_t> placed(model.size()), pieces(model.size());
  std::size_t previous_last = model.size();
  for (const auto& bucket : plan.buckets) {
    check_bucket(model, bucket);
    for (const GradientPart& part : bucket.parts) {
      EXPECT_EQ(part.first, placed[part.parameter]) << "pieces are not in order";
      placed[part.parameter] += part.count;
      ++pieces[part.parameter];
    }
    const GradientPart& last = bucket.parts.back();
    EXPECT_LE(last.parameter, previous_last) << "buckets are not in the order in which they fill";
    EXPECT_TRUE(last.parameter < previous_last || last.first > 0);
    previous_last = last.parameter;
    const std::size_t bytes = bucket.count * size_of(bucket.type);
    if (bucket.parts.size() > 1) {
      EXPECT_LE(bytes, cap);
    } else if (options.split_large) {
      EXPECT_LE(bytes, bucket.parts[0].count == elements(model[bucket.parts[0].parameter])
                           ? std::max(cap, piece)
                           : piece);
    }
  }
  for (std::size_t i = 0; i < model.size(); ++i) {
    EXPECT_EQ(placed[i], elements(model[i]));
    EXPECT_GE(pieces[i], 1u);
    if (!options.split_large) {
      EXPECT_EQ(pieces[i], 1u);
    }
  }
}

TEST(BucketPlan, HoldsItsContractOnRandomModels) {
  std::mt19937 random(7);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
  constexpr DataType kTypes[] = {DataType::f32, DataType::bf16, DataType::f64, DataType::complex128,
                                 DataType::f8e4m3};
  for (int round = 0; round < 300; ++round) {
    std::vector<Parameter> model;
    for (std::size_t n = below(40); n-- > 0;) {
      model.push_back(parameter({below(50), 1 + below(60)}, kTypes[below(std::size(kTypes))]));
    }
    ReducerOptions options{.bucket_bytes = below(20'000), .first_bucket_bytes = below(3'000)};
    options.split_large = below(2) == 0;
    check_plan(model, options);
  }
}

}  // namespace
}  // namespace lockstep
