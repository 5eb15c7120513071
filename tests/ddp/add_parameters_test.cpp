// Parameters that join later: with every mode they count as if they had been there from the start, nothing
// moves, hooks keep what they know, and lists that differ are named without harm.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <string>

#include "lib/base/float16.hpp"
#include "lockstep/ddp.hpp"
#include "tests/ddp/model.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using internal::BF16;
using testing::on_ranks;
using testing::thrown_by;

constexpr std::size_t kTensors = 16;
constexpr std::size_t kAtFirst = 9;

std::span<const Parameter> first_of(Model& model, const ReducerOptions& options) {
  return std::span(model.list(options)).first(kAtFirst);
}
std::span<const Parameter> rest_of(Model& model, const ReducerOptions& options) {
  return std::span(model.list(options)).subspan(kAtFirst);
}

void mark(Reducer& reducer, const Model& model, int rank, std::size_t step, std::size_t tensors) {
  for (std::size_t i = tensors; i-- > 0;) {
    write_gradient(reducer, model, i, rank, step);
    reducer.mark_ready(i);
  }
}

void expect_averages(const Reducer& reducer, const Model& model, int ranks, std::size_t step,
                     std::size_t tensors) {
  for (std::size_t i = 0; i < tensors; ++i) {
    for (std::size_t e = 0; e < model.elements(i); ++e) {
      ASSERT_NEAR(static_cast<const float*>(reducer.gradient(i))[e],
                  summed_gradient(ranks, step, i, e) / static_cast<float>(ranks), 1e-4)
          << "tensor " << i << ", element " << e;
    }
  }
}

ReducerOptions options_of(unsigned bits) {
  ReducerOptions options{.bucket_bytes = 4'000, .first_bucket_bytes = 1'000, .check_first = false};
  options.gradients_as_views = bits & 1;
  options.static_graph = bits & 2;
  options.find_unused = bits & 4;
  if (bits & 8) options.gradients_moved = [] {};
  if (bits & 16) {
    options.hook = make_hook("plain", [](Communicator& c, const GradientBucket& b) {
      return HookResult{c.all_reduce_async(b.data, b.data, b.count, b.type, b.op())};
    });
  }
  return options;
}

TEST(AddParameters, CountAsIfTheyHadBeenThere) {
  for (unsigned bits = 0; bits < 32; ++bits) {
    SCOPED_TRACE(bits);
    on_ranks(3, bits % 2 == 0 ? "tcp" : "shm", [&](Communicator& communicator) {
      const int rank = communicator.rank();
      Model model(kTensors, 3);
      for (std::size_t i = 0; i < kTensors; ++i)
        for (float& value : model.values(i)) value = static_cast<float>(rank);
      const ReducerOptions options = options_of(bits);
      Reducer reducer(communicator, first_of(model, options), options);
      const auto step = [&](std::size_t tensors) {
        const std::size_t number = reducer.steps();
        mark(reducer, model, rank, number, tensors);
        reducer.wait();
        expect_averages(reducer, model, communicator.size(), number, tensors);
      };
      for (int k = 0; k < 3; ++k) step(kAtFirst);
      std::vector<void*> places;
      for (std::size_t i = 0; i < kAtFirst; ++i) places.push_back(reducer.gradient(i));
      reducer.add_parameters(rest_of(model, options));
      for (std::size_t i = 0; i < kAtFirst; ++i) EXPECT_EQ(reducer.gradient(i), places[i]) << i;
      for (std::size_t i = kAtFirst; i < kTensors; ++i) {
        for (const float value : model.values(i)) ASSERT_EQ(value, 0) << "tensor " << i;  // Rank 0's.
        for (std::size_t e = 0; e < model.elements(i); ++e)
          ASSERT_EQ(static_cast<float*>(reducer.gradient(i))[e], 0);
      }
      EXPECT_EQ(reducer.plan().buckets[0].parts[0].parameter, kTensors - 1);
      for (int k = 0; k < 3; ++k) step(kTensors);
      EXPECT_TRUE(reducer.used(kTensors - 1));
      const std::size_t frozen[] = {2, kTensors - 2};
      reducer.freeze(frozen);
      mark(reducer, model, rank, 7, kTensors);
      reducer.wait();
      EXPECT_EQ(static_cast<float*>(reducer.gradient(kTensors - 1))[0],
                summed_gradient(3, 7, kTensors - 1, 0) / 3);
    });
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(AddParameters, LetTheBucketsFollowTheNewOrder) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(kTensors, 3);
    const ReducerOptions options = options_of(0);
    Reducer reducer(communicator, first_of(model, options), options);
    const auto forwards = [&](std::size_t tensors) {
      for (std::size_t i = 0; i < tensors; ++i) reducer.mark_ready(i);
      reducer.wait();
    };
    forwards(kAtFirst);
    EXPECT_EQ(reducer.plan().buckets[0].parts[0].parameter, 0u);
    reducer.add_parameters(rest_of(model, options));
    forwards(kTensors);
    EXPECT_EQ(reducer.plan().buckets[0].parts[0].parameter, 0u);
    EXPECT_EQ(reducer.plan().buckets.back().parts.back().parameter, kTensors - 1);
  });
}

/// What error feedback has kept back comes out in the steps after, whoever joined or left.
TEST(AddParameters, LeaveWhatAHookKeeps) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(kTensors, 3);
    ReducerOptions options{.bucket_bytes = 4'000, .first_bucket_bytes = 1'000};
    options.hook = make_top_k_hook({.share = 0.2});
    Reducer reducer(communicator, first_of(model, options), options);
    mark(reducer, model, communicator.rank(), 0, kAtFirst);
    reducer.wait();
    const auto contents = [&](const std::set<std::size_t>& of) {
      std::map<std::string, std::vector<float>> all;
      for (const TensorSlice& slice : reducer.slices()) {
        if (of.count(std::stoul(slice.name.substr(std::strlen("tensor")))) == 0 || slice.count == 0) continue;
        const auto* data = static_cast<const float*>(slice.data);
        all[slice.name].assign(data, data + slice.count);
      }
      return all;
    };
    const std::set<std::size_t> old{0, 1, 2, 3, 4, 5, 6, 7, 8}, thawed{0, 1, 2, 8};
    const auto before = contents(old), of_thawed = contents(thawed);
    EXPECT_TRUE(std::any_of(of_thawed.begin(), of_thawed.end(), [](const auto& tensor) {
      return std::any_of(tensor.second.begin(), tensor.second.end(), [](float x) { return x != 0; });
    }));
    reducer.add_parameters(rest_of(model, options));
    EXPECT_EQ(contents(old), before);
    const std::size_t buckets = reducer.plan().buckets.size();
    const std::size_t frozen[] = {3, 4, 5, 6, 7};
    reducer.freeze(frozen);
    EXPECT_LT(reducer.plan().buckets.size(), buckets);
    EXPECT_EQ(contents(thawed), of_thawed);
  });
}

TEST(AddParameters, ThatDifferAreNamedAndTheReducerIsAsBefore) {
  on_ranks(3, "auto", [](Communicator& communicator) {
    const bool culprit = communicator.rank() == 2;
    Model model(kTensors, 3);
    const ReducerOptions options = options_of(1);  // Views.
    Reducer reducer(communicator, first_of(model, options), options);
    const auto expect = [&](std::span<const Parameter> added, ErrorCode code, const std::string& text) {
      const Error error = thrown_by([&] { reducer.add_parameters(added); });
      EXPECT_EQ(error.code(), code);
      EXPECT_EQ(error.culprit(), 2);
      EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
      const std::size_t number = reducer.steps();
      mark(reducer, model, communicator.rank(), number, kAtFirst);
      reducer.wait();
      expect_averages(reducer, model, 3, number, kAtFirst);
    };
    std::vector<Parameter> added(rest_of(model, options).begin(), rest_of(model, options).end());
    expect(culprit ? std::span(added).first(2) : std::span(added), ErrorCode::mismatch,
           "parameter 11 differs on rank 2, which has only 11 parameters; rank 0 has \"tensor11\"");
    if (culprit) added[3].shape = {1, 1};
    expect(added, ErrorCode::mismatch, "parameter 12 differs on rank 2, which has \"tensor12\" f32 [1, 1]");
    added.assign(rest_of(model, options).begin(), rest_of(model, options).end());
    added[5].shape = {7};
    added[5].value = culprit ? nullptr : added[5].value;
    expect(added, culprit ? ErrorCode::invalid_argument : ErrorCode::refused,
           "parameter 14, \"tensor14\" f32 [7], has a null value");
    added.assign(rest_of(model, options).begin(), rest_of(model, options).end());
    added[5].gradient = culprit ? added[5].value : nullptr;
    expect(added, culprit ? ErrorCode::invalid_argument : ErrorCode::refused,
           "has memory for its gradient, which nothing reads");
    EXPECT_THROW(reducer.mark_ready(kAtFirst), Error);
  });
}

TEST(AddParameters, JoinBetweenStepsOnly) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Model model(kTensors, 3);
    const ReducerOptions options = options_of(1);
    Reducer reducer(communicator, first_of(model, options), options);
    reducer.mark_ready(0);
    const Error error = thrown_by([&] { reducer.add_parameters(rest_of(model, options)); });
    EXPECT_EQ(std::string(error.what()),
              "add_parameters was called in the midst of step 1; call wait() first");
    for (std::size_t i = 1; i < kAtFirst; ++i) reducer.mark_ready(i);
    reducer.wait();
    reducer.add_parameters({});  // Nobody joins.
    reducer.add_parameters(rest_of(model, options));
    for (std::size_t i = 0; i < kTensors; ++i) reducer.mark_ready(i);
    reducer.wait();
  });
}

/// The first half-precision parameter brings the way that adds it up in f32 with it. Added one by one in bf16
/// (8 bits of precision) the small ones are lost.
TEST(AddParameters, OfAnotherTypeAreAddedUpAsTheOptionsSay) {
  on_ranks(5, "tcp", [](Communicator& communicator) {
    std::vector<float> wide(100);
    std::vector<std::uint16_t> half(1000);
    const Parameter first{"wide", DataType::f32, {100}, wide.data(), nullptr};
    const Parameter second{"half", DataType::bf16, {1000}, half.data(), nullptr};
    Reducer reducer(communicator, {&first, 1}, {.average = false, .half_in_f32 = true});
    reducer.mark_ready(0);
    reducer.wait();
    reducer.add_parameters({&second, 1});
    auto* sums = static_cast<std::uint16_t*>(reducer.gradient(1));
    static_cast<float*>(reducer.gradient(0))[7] = 2;
    std::fill_n(sums, half.size(), BF16::from_float(communicator.rank() == 0 ? 1.0f : 0x1p-9f));
    reducer.mark_ready(1);
    reducer.mark_ready(0);
    reducer.wait();
    EXPECT_EQ(static_cast<float*>(reducer.gradient(0))[7], 10);
    for (std::size_t e = 0; e < half.size(); ++e) ASSERT_EQ(BF16::to_float(sums[e]), 1.0f + 0x1p-7f);
  });
}

}  // namespace
}  // namespace lockstep
