// A hundred random models: 1 to 500 tensors of 1 to 20 M elements, 64 M in all of the largest, mixed types,
// random orders of marking, random unused sets, views and copies. The gradients are whole numbers whose sums
// and averages are exact in every type, so that the result of one process is a formula.
// `ddp_random_models_test --operations N` runs N of them; those beyond the first hundred are large ones.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <random>
#include <string>

#include "ddp/gradient_math.hpp"
#include "lockstep/ddp.hpp"
#include "tests/ddp/typed_numbers.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/count_option.hpp"

namespace lockstep {
namespace {

constexpr int kRanks = 4;
constexpr unsigned kModels = 100;
constexpr std::size_t kLargestModel = 64'000'000;
constexpr std::size_t kLargestTensor = 20'000'000;
constexpr std::size_t kMostTensors = 500;

struct Tensor {
  DataType type = DataType::f32;
  std::size_t elements = 0;
  unsigned users = 0;  // Bit r: rank r has a gradient in this step.
};

struct RandomModel {
  std::vector<Tensor> tensors;
  ReducerOptions options;
  unsigned seed = 0;
};

struct Limits {
  std::size_t elements = 0;
  std::size_t tensors = 0;
};

/// Small models but for the first three, which are the extremes: many small ones find more than many large
/// ones. Of those beyond the usual number every order of magnitude is as likely as any other.
Limits limits_of(unsigned seed, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
  if (seed == 0) return {kLargestModel, 60};
  if (seed == 1) return {1, 1};
  if (seed == 2) return {300'000, kMostTensors};
  if (seed < kModels) return {1 + below(300'000), 1 + below(kMostTensors)};
  const double magnitude = std::uniform_real_distribution<double>(4, std::log10(kLargestModel))(random);
  return {static_cast<std::size_t>(std::pow(10, magnitude)), 1 + below(kMostTensors)};
}

RandomModel random_model(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
  constexpr DataType kTypes[] = {DataType::f32,       DataType::f32,    DataType::bf16, DataType::f16,
                                 DataType::complex64, DataType::f8e4m3, DataType::f64};
  RandomModel model;
  model.seed = seed;
  const bool largest = seed == 0;
  auto [budget, tensors] = limits_of(seed, random);
  const std::size_t share = budget / tensors;
  for (std::size_t i = 0; i < tensors && budget > 0; ++i) {
    Tensor t;
    const unsigned bits = static_cast<unsigned>(below(25));
    t.elements = std::min({std::size_t{1} + below(std::size_t{1} << bits), budget, kLargestTensor});
    if (seed == 2) t.elements = std::min(t.elements, share);  // Something for each.
    if (largest && i == 30) t.elements = kLargestTensor;
    if (!largest && i + 1 == tensors) t.elements = std::min(budget, kLargestTensor);
    // Memory: the largest model is of small types.
    t.type = largest ? kTypes[2 + below(2)] : kTypes[below(std::size(kTypes))];
    budget -= t.elements;
    t.users = static_cast<unsigned>(below(1u << kRanks));
    model.tensors.push_back(t);
  }
  if (largest && budget > 0) model.tensors.push_back({model.tensors.back().type, budget, 1});
  ReducerOptions& o = model.options;
  if (!largest) {
    o.bucket_bytes = 1 + below(400'000);
    o.first_bucket_bytes = 1 + below(20'000);
  }
  o.find_unused = below(4) > 0;
  if (!o.find_unused) {
    for (Tensor& t : model.tensors) t.users = (1u << kRanks) - 1;
  }
  o.split_large = below(4) > 0;
  o.average = below(2) > 0;
  o.half_in_f32 = below(4) == 0;
  o.check_first = below(2) == 0;
  return model;
}

int local_number(unsigned users, std::size_t i, std::size_t e, int rank) {
  if ((users >> rank & 1) == 0) return 0;
  return (static_cast<int>((i * 5 + e) % 7) - 3) + (rank & 1);
}

/// Divided by four it is a quarter, which every type has.
int sum_of_all(unsigned users, std::size_t i, std::size_t e) {
  int sum = 0;
  for (int r = 0; r < kRanks; ++r) sum += local_number(users, i, e, r);
  return sum;
}

/// The seven distinct values of a tensor, repeated: what is stored is looked up.
template <typename Number>
void fill(DataType type, void* data, std::size_t count, Number number) {
  const std::size_t period = 7;  // Of local_number and sum_of_all in e.
  const std::size_t head = std::min(count, period);
  for (std::size_t e = 0; e < head; ++e) store(type, data, e, number(e));
  auto* bytes = static_cast<std::byte*>(data);
  for (std::size_t done = head; done < count;) {
    const std::size_t next = std::min(done, count - done);
    std::memcpy(bytes + done * size_of(type), data, next * size_of(type));
    done += next;
  }
}

class RankRun {
 public:
  RankRun(Communicator& communicator, const RandomModel& model)
      : communicator_(communicator), model_(model), options_(model.options) {
    // The choice of the rank: views or copies.
    options_.gradients_as_views = model.seed == 0 || (model.seed + communicator.rank()) % 3 > 0;
    for (const Tensor& t : model.tensors) {
      const std::size_t bytes = t.elements * size_of(t.type);
      values_.emplace_back(bytes);
      gradients_.emplace_back(options_.gradients_as_views ? 0 : bytes);
      list_.push_back({"t" + std::to_string(list_.size()),
                       t.type,
                       {t.elements},
                       values_.back().data(),
                       gradients_.back().data()});
    }
    reducer_.emplace(communicator, list_, options_);
    values_.clear();  // Broadcast once, not needed any more.
  }

  void step(std::size_t number) {
    const int rank = communicator_.rank();
    std::vector<std::size_t> order(model_.tensors.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(
        order.begin(), order.end(),
        std::mt19937(static_cast<unsigned>(model_.seed * 10 + number * 4) + static_cast<unsigned>(rank)));
    for (const std::size_t i : order) {
      const Tensor& t = model_.tensors[i];
      if ((t.users >> rank & 1) == 0) continue;
      fill(t.type, reducer_->gradient(i), t.elements,
           [&](std::size_t e) { return static_cast<float>(local_number(t.users, i, e, rank)); });
      reducer_->mark_ready(i);
    }
    reducer_->wait();
    check();
  }

 private:
  void check() {
    std::vector<std::byte> expected;
    std::uint64_t hash = 0;
    const float divisor = options_.average ? kRanks : 1;
    for (std::size_t i = 0; i < model_.tensors.size(); ++i) {
      const Tensor& t = model_.tensors[i];
      expected.resize(t.elements * size_of(t.type));
      fill(t.type, expected.data(), t.elements,
           [&](std::size_t e) { return static_cast<float>(sum_of_all(t.users, i, e)) / divisor; });
      EXPECT_EQ(reducer_->used(i), t.users != 0);
      // Minus zero equals zero, in numbers but not in bytes.
      const void* gradient = reducer_->gradient(i);
      if (std::memcmp(gradient, expected.data(), expected.size()) != 0) {
        for (std::size_t e = 0; e < t.elements; ++e) {
          ASSERT_EQ(load(t.type, gradient, e), load(t.type, expected.data(), e))
              << "model " << model_.seed << ", tensor " << i << " (" << name_of(t.type) << " x " << t.elements
              << "), element " << e;
        }
      }
      hash = hash * 31 + internal::hash_bytes(gradient, expected.size());
    }
    std::vector<std::uint64_t> all(kRanks);
    communicator_.all_gather(&hash, all.data(), 1, DataType::u64);
    for (const std::uint64_t other : all) ASSERT_EQ(other, hash) << "model " << model_.seed;
  }

  Communicator& communicator_;
  const RandomModel& model_;
  ReducerOptions options_;
  std::vector<std::vector<std::byte>> values_, gradients_;
  std::vector<Parameter> list_;
  std::optional<Reducer> reducer_;
};

/// What the models of a run were.
class Span {
 public:
  void add(const RandomModel& model) {
    std::size_t all = 0;
    for (const Tensor& t : model.tensors) {
      all += t.elements;
      smallest_ = std::min(smallest_, t.elements);
      largest_ = std::max(largest_, t.elements);
      types_ |= 1u << static_cast<unsigned>(t.type);
    }
    largest_model_ = std::max(largest_model_, all);
    fewest_ = std::min(fewest_, model.tensors.size());
    most_ = std::max(most_, model.tensors.size());
  }
  void expect_all() const {
    EXPECT_EQ(smallest_, 1u);
    EXPECT_EQ(largest_, kLargestTensor);
    EXPECT_EQ(largest_model_, kLargestModel);
    EXPECT_EQ(fewest_, 1u);
    EXPECT_EQ(most_, kMostTensors);
    EXPECT_EQ(std::popcount(types_), 6);
  }

 private:
  std::size_t smallest_ = kLargestModel, largest_ = 0, largest_model_ = 0;
  std::size_t fewest_ = kMostTensors, most_ = 0;
  unsigned types_ = 0;
};

TEST(RandomModels, GiveTheResultOfOneProcessOnEveryRank) {
  const auto models = static_cast<unsigned>(testing::count_option(kModels));
  Span span;
  for (unsigned seed = 0; seed < models; ++seed) {
    const RandomModel model = random_model(seed);
    span.add(model);
    testing::on_ranks(kRanks, seed % 5 == 1 ? "tcp" : "shm", [&](Communicator& communicator) {
      RankRun run(communicator, model);
      for (std::size_t step = 0; step < 2 && !::testing::Test::HasFailure(); ++step) run.step(step);
    });
    if (::testing::Test::HasFailure()) return;
  }
  if (models >= kModels) span.expect_all();
}

}  // namespace
}  // namespace lockstep
