// What each hook does to a bucket: bytes handed to collectives against the formula, closeness to the average,
// equal bits on all ranks, and what is not finite. Over both media and for worlds that take different ways.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "lockstep/ddp.hpp"
#include "tests/ddp/hooks/every_hook.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using testing::on_ranks;
using testing::thrown_by;

/// A matrix, a vector, a scalar, an empty tensor, and one of another type.
struct Net {
  std::vector<float> matrix = std::vector<float>(60 * 50), vector = std::vector<float>(77), scalar{1};
  std::vector<double> wide = std::vector<double>(9);
  std::vector<Parameter> list{{"matrix", DataType::f32, {60, 50}, matrix.data(), nullptr},
                              {"vector", DataType::f32, {77}, vector.data(), nullptr},
                              {"scalar", DataType::f32, {}, scalar.data(), nullptr},
                              {"empty", DataType::f32, {0}, nullptr, nullptr},
                              {"wide", DataType::f64, {9}, wide.data(), nullptr}};
  static constexpr std::size_t kFloatTensors = 3;
  std::size_t count(std::size_t i) const { return std::vector<std::size_t>{3'000, 77, 1}[i]; }
};

/// What `rank` computes; the same for every call.
std::vector<float> gradient_of(int rank, std::size_t tensor, std::size_t count, std::size_t step) {
  std::mt19937 random(static_cast<unsigned>(1'000 * step + 10 * tensor) + static_cast<unsigned>(rank));
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> values(count);
  for (float& x : values) x = normal(random);
  return values;
}

void run_step(Reducer& reducer, const Net& net, int rank, std::size_t step) {
  for (std::size_t i = net.list.size(); i-- > 0;) {
    if (i < Net::kFloatTensors) {
      const std::vector<float> values = gradient_of(rank, i, net.count(i), step);
      std::copy(values.begin(), values.end(), static_cast<float*>(reducer.gradient(i)));
    } else if (net.list[i].type == DataType::f64) {
      std::fill_n(static_cast<double*>(reducer.gradient(i)), 9, rank + 1.0);
    }
    reducer.mark_ready(i);
  }
  reducer.wait();
}

struct Distance {
  double error = 0, size = 0;
  double relative() const { return std::sqrt(error / size); }
};

/// Of the gradients in the reducer from the exact average.
Distance distance(const Reducer& reducer, const Net& net, int ranks, std::size_t step) {
  Distance result;
  for (std::size_t i = 0; i < Net::kFloatTensors; ++i) {
    std::vector<double> exact(net.count(i));
    for (int r = 0; r < ranks; ++r) {
      const std::vector<float> values = gradient_of(r, i, net.count(i), step);
      for (std::size_t e = 0; e < exact.size(); ++e) exact[e] += values[e] / ranks;
    }
    const auto* got = static_cast<const float*>(reducer.gradient(i));
    for (std::size_t e = 0; e < exact.size(); ++e) {
      result.error += std::pow(got[e] - exact[e], 2);
      result.size += exact[e] * exact[e];
    }
  }
  return result;
}

/// Every rank has the bits of rank 0.
void expect_equal_bits(Communicator& communicator, const Reducer& reducer, const Net& net) {
  for (std::size_t i = 0; i < Net::kFloatTensors; ++i) {
    std::vector<float> first(net.count(i));
    std::copy_n(static_cast<const float*>(reducer.gradient(i)), first.size(), first.begin());
    communicator.broadcast(first.data(), first.size(), DataType::f32, 0);
    EXPECT_EQ(std::memcmp(first.data(), reducer.gradient(i), first.size() * sizeof(float)), 0)
        << "tensor " << i;
  }
}

/// Elements of the f32 bucket and bytes of the f64 one, as planned.
struct Sizes {
  std::size_t floats = 0, other_bytes = 0;
};
Sizes sizes_of(const BucketPlan& plan) {
  Sizes sizes;
  for (const auto& bucket : plan.buckets) {
    if (bucket.type == DataType::f32) {
      EXPECT_EQ(sizes.floats, 0u) << "one bucket was expected";
      sizes.floats = bucket.count;
    } else {
      sizes.other_bytes += bucket.count * size_of(bucket.type);
    }
  }
  return sizes;
}

struct HookCase {
  const char* name;
  std::shared_ptr<CommunicationHook> (*make)();
  /// Bytes of the f32 bucket, of `count` elements, handed over in one step of a world of `ranks`.
  std::size_t (*bytes)(std::size_t count, std::size_t ranks);
  double error;  ///< Relative distance from the average that one step may have.
};

std::size_t half_bytes(std::size_t count, std::size_t) { return 2 * count; }
std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }
std::size_t coded_bytes(std::size_t count) { return (count + 255) / 256 * 4 + round_up(count, 4); }
std::size_t quantised_bytes(std::size_t count, std::size_t ranks) {
  if (ranks == 2) return coded_bytes(count);
  return (ranks + 1) * coded_bytes(round_up((count + ranks - 1) / ranks, 256));
}
std::size_t top_k_bytes(std::size_t count, std::size_t) { return count / 10 * 8; }
/// The 60 x 50 matrix by 4 columns, and 78 numbers as they are.
std::size_t power_sgd_bytes(std::size_t, std::size_t) { return 4 * (4 * (60 + 50) + 78); }

class Hooks : public ::testing::TestWithParam<HookCase> {};

TEST_P(Hooks, SendAsManyBytesAsTheFormulaSaysAndComeCloseWithEqualBits) {
  constexpr std::size_t kSteps = 3;
  for (const char* transports : {"shm", "tcp"}) {
    for (const int ranks : {2, 3, 4}) {
      on_ranks(ranks, transports, [&](Communicator& communicator) {
        Net net;
        const auto hook = GetParam().make();
        Reducer reducer(communicator, net.list, {.hook = hook});
        const Sizes sizes = sizes_of(reducer.plan());
        const std::size_t expected =
            sizes.other_bytes + GetParam().bytes(sizes.floats, static_cast<std::size_t>(ranks));
        for (std::size_t step = 0; step < kSteps; ++step) {
          run_step(reducer, net, communicator.rank(), step);
          expect_equal_bits(communicator, reducer, net);
          EXPECT_EQ(hook->bytes_on_wire(), (step + 1) * expected);
          if (step > 0) continue;
          EXPECT_LT(distance(reducer, net, ranks, 0).relative(), GetParam().error);
          EXPECT_EQ(*static_cast<const double*>(reducer.gradient(4)), (ranks + 1) / 2.0);
        }
      });
    }
  }
}

TEST_P(Hooks, SumsWhenTheAverageIsNotWanted) {
  on_ranks(3, "auto", [&](Communicator& communicator) {
    Net net, other;
    Reducer average(communicator, net.list, {.hook = GetParam().make()});
    Reducer sum(communicator, other.list, {.average = false, .hook = GetParam().make()});
    run_step(average, net, communicator.rank(), 0);
    run_step(sum, other, communicator.rank(), 0);
    for (std::size_t i = 0; i < Net::kFloatTensors; ++i) {
      const auto* a = static_cast<const float*>(average.gradient(i));
      const auto* s = static_cast<const float*>(sum.gradient(i));
      for (std::size_t e = 0; e < net.count(i); ++e) ASSERT_NEAR(s[e], 3 * a[e], 0.05f) << i << " " << e;
    }
  });
}

TEST_P(Hooks, LeaveASingleRankAlone) {
  on_ranks(1, "auto", [&](Communicator& communicator) {
    Net net;
    const auto hook = GetParam().make();
    Reducer reducer(communicator, net.list, {.hook = hook});
    run_step(reducer, net, 0, 0);
    EXPECT_EQ(distance(reducer, net, 1, 0).error, 0.0);
    EXPECT_EQ(hook->bytes_on_wire(), 0u);
  });
}

TEST_P(Hooks, PassOnANanAndRecover) {
  on_ranks(3, "auto", [&](Communicator& communicator) {
    Net net;
    Reducer reducer(communicator, net.list, {.hook = GetParam().make()});
    for (std::size_t i = net.list.size(); i-- > 0;) {
      if (i == 0 && communicator.rank() == 1)
        static_cast<float*>(reducer.gradient(0))[11] = std::numeric_limits<float>::quiet_NaN();
      reducer.mark_ready(i);
    }
    reducer.wait();
    EXPECT_TRUE(std::isnan(static_cast<const float*>(reducer.gradient(0))[11]));
    for (std::size_t step = 1; step < 3; ++step) run_step(reducer, net, communicator.rank(), step);
    EXPECT_LT(distance(reducer, net, 3, 2).relative(), 2.0);
    expect_equal_bits(communicator, reducer, net);
  });
}

/// More of them than travel in a step.
TEST(TopK, DropsEveryNanAtOnce) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Net net;
    Reducer reducer(communicator, net.list, {.hook = make_top_k_hook({.share = 0.01})});
    const float written = communicator.rank() == 1 ? std::numeric_limits<float>::quiet_NaN() : 1.0f;
    for (std::size_t i = 0; i < Net::kFloatTensors; ++i)
      std::fill_n(static_cast<float*>(reducer.gradient(i)), net.count(i), written);
    for (std::size_t i = 0; i < net.list.size(); ++i) reducer.mark_ready(i);
    reducer.wait();
    run_step(reducer, net, communicator.rank(), 1);
    for (std::size_t i = 0; i < Net::kFloatTensors; ++i) {
      const auto* gradient = static_cast<const float*>(reducer.gradient(i));
      for (std::size_t e = 0; e < net.count(i); ++e) ASSERT_TRUE(std::isfinite(gradient[e])) << i;
    }
  });
}

std::shared_ptr<CommunicationHook> bf16() { return make_half_hook(DataType::bf16); }
std::shared_ptr<CommunicationHook> f16() { return make_half_hook(DataType::f16); }
std::shared_ptr<CommunicationHook> i8() { return make_quantised_hook(); }
std::shared_ptr<CommunicationHook> e4m3() { return make_quantised_hook({.type = DataType::f8e4m3}); }
std::shared_ptr<CommunicationHook> e5m2() { return make_quantised_hook({.type = DataType::f8e5m2}); }
std::shared_ptr<CommunicationHook> top_k() { return make_top_k_hook({.share = 0.1}); }
std::shared_ptr<CommunicationHook> power_sgd() { return make_power_sgd_hook({.start_step = 1}); }

// Random matrices have no low rank and no few large elements: the last two are far off in a single step.
constexpr HookCase kCases[] = {
    {"bf16", bf16, half_bytes, 0.005},
    {"f16", f16, half_bytes, 0.001},
    {"i8", i8, quantised_bytes, 0.02},
    {"f8e4m3", e4m3, quantised_bytes, 0.06},
    {"f8e5m2", e5m2, quantised_bytes, 0.12},
    {"top_k", top_k, top_k_bytes, 0.95},
    {"powersgd", power_sgd, power_sgd_bytes, 0.95},
};
INSTANTIATE_TEST_SUITE_P(All, Hooks, ::testing::ValuesIn(kCases),
                         [](const auto& row) { return row.param.name; });

TEST(HookCases, AreThoseOfAllHooks) { testing::expect_row_of_every_hook(kCases); }

TEST(PowerSgd, SendsAsIsBeforeItsFirstStep) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Net net;
    const auto hook = make_power_sgd_hook({.start_step = 3});
    Reducer reducer(communicator, net.list, {.hook = hook});
    const Sizes sizes = sizes_of(reducer.plan());
    std::uint64_t before = 0;
    for (std::size_t step = 1; step <= 4; ++step) {
      run_step(reducer, net, communicator.rank(), step);
      const std::uint64_t sent = hook->bytes_on_wire() - before;
      before = hook->bytes_on_wire();
      EXPECT_EQ(sent, sizes.other_bytes + (step < 3 ? 4 * sizes.floats : power_sgd_bytes(0, 0)));
      EXPECT_EQ(distance(reducer, net, 2, step).relative() < 1e-6, step < 3);
    }
  });
}

TEST(LocalSgd, AveragesParametersEverySoManySteps) {
  on_ranks(3, "auto", [](Communicator& communicator) {
    Net net;
    const auto local = std::make_shared<LocalSgd>(LocalSgdOptions{.start_step = 3, .period = 2});
    Reducer reducer(communicator, net.list, {.hook = local});
    const std::uint64_t gradient_bytes =
        4 * sizes_of(reducer.plan()).floats + sizes_of(reducer.plan()).other_bytes;
    const std::uint64_t parameter_bytes = 4 * 3'078 + 8 * 9;
    std::uint64_t expected = 0;
    for (std::size_t step = 1; step <= 7; ++step) {
      run_step(reducer, net, communicator.rank(), step);
      const std::vector<float> own = gradient_of(communicator.rank(), 1, net.count(1), step);
      const bool averaged_gradients = static_cast<const float*>(reducer.gradient(1))[0] != own[0];
      EXPECT_EQ(averaged_gradients, step < 3);
      net.vector[5] = static_cast<float>(communicator.rank());  // What an optimizer would do.
      const bool averaged = local->average_parameters(step == 7);
      EXPECT_EQ(averaged, step == 4 || step == 6 || step == 7) << step;
      EXPECT_EQ(net.vector[5], averaged ? 1.0f : static_cast<float>(communicator.rank()));
      EXPECT_FALSE(local->average_parameters(false));
      expected += (step < 3 ? gradient_bytes : 0) + (averaged ? parameter_bytes : 0);
      EXPECT_EQ(local->bytes_on_wire(), expected);
    }
  });
}

TEST(HookOptions, ThatMakeNoSenseAreRefused) {
  const auto message = [](const std::function<void()>& call) {
    const Error error = thrown_by(call);
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return std::string(error.what());
  };
  EXPECT_EQ(message([] { make_half_hook(DataType::f32); }),
            "make_half_hook: f32 is no half type; pass bf16 or f16");
  EXPECT_EQ(message([] { make_quantised_hook({.type = DataType::i32}); }),
            "make_quantised_hook: no codes of type i32; pass i8, f8e4m3 or f8e5m2");
  EXPECT_EQ(message([] { make_quantised_hook({.block = 6}); }),
            "make_quantised_hook: a block of 6 elements; choose a multiple of 4 up to 65536");
  EXPECT_NE(message([] { make_top_k_hook({.share = 0}); }).find("choose one in (0, 1]"), std::string::npos);
  EXPECT_NE(message([] { make_top_k_hook({.share = std::nan("")}); }).find("(0, 1]"), std::string::npos);
  EXPECT_NE(message([] { make_power_sgd_hook({.rank = 0}); }).find("choose 1 to 256"), std::string::npos);
  EXPECT_NE(message([] { make_power_sgd_hook({.min_compression = 0.5}); }).find("larger than"),
            std::string::npos);
  EXPECT_NE(message([] { LocalSgd({.period = 0}); }).find("a period of 0"), std::string::npos);
  EXPECT_NE(message([] { hook_by_name("zip"); }).find("no hook is called \"zip\"; choose none, bf16"),
            std::string::npos);
}

TEST(HookOptions, NamesMakeTheHooks) {
  EXPECT_EQ(hook_by_name("none"), nullptr);
  for (const std::string_view name : testing::every_hook()) {
    EXPECT_TRUE(hook_by_name(name)->name().starts_with(name)) << hook_by_name(name)->name();
  }
}

}  // namespace
}  // namespace lockstep
