// Random trainings of many steps, against a formula: micro-batches under no_sync, ranks without data,
// weights, unused parameters, static graphs, parameters that are frozen or join midway, steps that fail and
// are repeated, threads that mark; and two reducers that take turns on one communicator.
// `ddp_random_trainings_test --operations N` runs N of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/ddp/mode_world.hpp"
#include "tests/ddp/thrown_by.hpp"
#include "tests/support/count_option.hpp"
#include "tests/support/draw.hpp"

namespace lockstep {
namespace {

constexpr int kRanks = 3;
constexpr std::size_t kTrainingSteps = 8;
constexpr unsigned kTrainings = 40;

enum class Failure { none, marked_twice, not_marked, not_finite };

/// What happens in a training, as pure functions.
struct Script {
  std::size_t seed = 0;

  /// `what` numbers the draws.
  std::size_t draw_of(std::size_t n, std::size_t what, std::size_t a = 0, std::size_t b = 0,
                      std::size_t c = 0) const {
    return testing::draw(n, {seed, what, a, b, c});
  }
  bool is_static() const { return draw_of(3, 1) == 0; }
  bool finds_unused() const { return !is_static() && draw_of(2, 2) == 0; }
  bool weighted() const { return draw_of(3, 3) == 0; }
  bool begins() const { return weighted() || draw_of(2, 4) == 0; }
  bool hook() const { return draw_of(3, 5) == 0; }
  bool overlaps() const { return !hook() && draw_of(3, 6) == 0; }
  bool threads() const { return draw_of(3, 7) == 0; }
  bool views(int rank) const {
    return draw_of(2, 8, draw_of(2, 9) == 0 ? 0 : static_cast<std::size_t>(rank));
  }
  std::size_t first_parameters() const { return 1 + draw_of(12, 10); }

  std::size_t elements(std::size_t i) const { return 1 + draw_of(i % 4 == 0 ? 900 : 40, 11, i); }
  std::size_t joining(std::size_t step) const {
    return draw_of(5, 12, step) == 0 ? 1 + draw_of(3, 13, step) : 0;
  }
  bool freezes(std::size_t step) const { return draw_of(4, 14, step) == 0; }
  bool frozen(std::size_t step, std::size_t i) const { return draw_of(3, 15, step, i) == 0; }
  std::size_t batches(std::size_t step) const { return 1 + draw_of(3, 16, step); }
  std::size_t samples(int rank, std::size_t step) const {
    if (rank == static_cast<int>(draw_of(kRanks, 17, step)) || !begins()) return 2;
    return draw_of(3, 18, step, static_cast<std::size_t>(rank)) * 2;
  }
  Failure failure(std::size_t step) const {
    if (draw_of(3, 19, step) != 0) return Failure::none;
    if (is_static()) return Failure::not_finite;
    const auto which = static_cast<Failure>(1 + draw_of(3, 20, step));
    return which == Failure::not_marked && finds_unused() ? Failure::not_finite : which;
  }
  /// How often rank marks i in a micro-batch.
  std::size_t marks(int rank, std::size_t step, std::size_t batch, std::size_t i) const {
    const auto r = static_cast<std::size_t>(rank);
    if (batch + 1 < batches(step)) return draw_of(3, 21, step * 4 + batch, i, r);
    if (is_static()) return draw_of(3, 22, i, r);
    return finds_unused() ? draw_of(2, 23, step, i, r) : 1;
  }
  /// Others that are not marked wait() finds.
  bool says_unused(int rank, std::size_t step, std::size_t batch, std::size_t i) const {
    return finds_unused() && marks(rank, step, batch, i) == 0 &&
           draw_of(2, 24, step * 4 + batch, i, static_cast<std::size_t>(rank)) == 0;
  }
  float gradient(int rank, std::size_t step, std::size_t batch, std::size_t i, std::size_t e) const {
    return static_cast<float>((i * 3 + e + step * 5 + batch * 2 + static_cast<std::size_t>(rank) * 11) % 17) -
           8;
  }
  bool uses(int rank, std::size_t step, std::size_t i) const {
    if (samples(rank, step) == 0) return false;
    for (std::size_t b = 0; b < batches(step); ++b)
      if (marks(rank, step, b, i) > 0) return true;
    return false;
  }
  double local(int rank, std::size_t step, std::size_t i, std::size_t e) const {
    double sum = 0;
    for (std::size_t b = 0; samples(rank, step) > 0 && b < batches(step); ++b)
      if (marks(rank, step, b, i) > 0) sum += gradient(rank, step, b, i, e);
    return sum;
  }
  double average(std::size_t step, std::size_t i, std::size_t e) const {
    double sum = 0, total = 0;
    for (int r = 0; r < kRanks; ++r) {
      const double weight = weighted() ? static_cast<double>(samples(r, step)) : 1;
      sum += weight * local(r, step, i, e);
      total += weight;
    }
    return sum / total;
  }
};

class Training {
 public:
  Training(Communicator& communicator, const Script& script) : script_(script), rank_(communicator.rank()) {
    options_ = {.bucket_bytes = 1 + script.draw_of(3'000, 30),
                .first_bucket_bytes = 1 + script.draw_of(400, 31)};
    options_.gradients_as_views = script.views(rank_);
    if (script.draw_of(2, 32) == 0) options_.gradients_moved = [] {};
    options_.find_unused = script.finds_unused();
    options_.static_graph = script.is_static();
    options_.weighted = script.weighted();
    options_.overlap_forward = script.overlaps();
    options_.check_finite = true;
    if (script.draw_of(2, 33) == 0) options_.check_first = script.draw_of(2, 34) == 0;
    if (script.hook()) options_.hook = all_reduce_hook();
    reducer_.emplace(communicator, more(script.first_parameters()), options_);
  }

  void step(std::size_t step) {
    if (const std::size_t count = script_.joining(step)) reducer_->add_parameters(more(count));
    if (script_.freezes(step)) {
      std::vector<std::size_t> list;
      frozen_.assign(values_.size(), false);
      for (std::size_t i = 0; i < values_.size(); ++i) {
        if (!script_.frozen(step, i)) continue;
        list.push_back(i);
        frozen_[i] = true;
      }
      reducer_->freeze(list);
    }
    frozen_.resize(values_.size());
    keep();
    begin(step);
    for (std::size_t b = 0; script_.samples(rank_, step) > 0 && b < script_.batches(step); ++b) {
      std::optional<Reducer::NoSync> pause;
      if (b + 1 < script_.batches(step)) pause.emplace(*reducer_);
      compute(step, b);
      if (pause) mark(step, b, {});
    }
    fail(step);
    mark_last(step, {});
    reducer_->wait();
    check(step);
  }

 private:
  std::vector<Parameter> more(std::size_t count) {
    std::vector<Parameter> list;
    for (; count > 0; --count) {
      const std::size_t i = values_.size(), elements = script_.elements(i);
      values_.emplace_back(elements);
      gradients_.emplace_back(elements);
      float* const gradient = options_.gradients_as_views ? nullptr : gradients_.back().data();
      list.push_back({"p" + std::to_string(i), DataType::f32, {elements}, values_.back().data(), gradient});
    }
    return list;
  }
  float* gradient(std::size_t i) { return static_cast<float*>(reducer_->gradient(i)); }

  /// What a failed step leaves: of a rank without data the gradients before begin_step(), which starts
  /// buckets.
  void keep() {
    before_.clear();
    for (std::size_t i = 0; i < values_.size(); ++i)
      before_.emplace_back(gradient(i), gradient(i) + values_[i].size());
  }
  void begin(std::size_t step) {
    written_.assign(values_.size(), false);
    if (script_.begins()) {
      ASSERT_TRUE(reducer_->begin_step(script_.samples(rank_, step)));
    }
    if (options_.overlap_forward) reducer_->wait_gradients();
  }
  void compute(std::size_t step, std::size_t batch) {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (frozen_[i] || script_.marks(rank_, step, batch, i) == 0) continue;
      for (std::size_t e = 0; e < values_[i].size(); ++e) {
        const float value = script_.gradient(rank_, step, batch, i, e);
        gradient(i)[e] = written_[i] ? gradient(i)[e] + value : value;
      }
      written_[i] = true;
    }
  }

  void mark(std::size_t step, std::size_t batch, std::optional<std::size_t> but) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (i == but) continue;
      order.insert(order.end(), script_.marks(rank_, step, batch, i), i);
      if (script_.says_unused(rank_, step, batch, i)) order.push_back(i);
    }
    std::shuffle(
        order.begin(), order.end(),
        std::mt19937(static_cast<unsigned>(script_.seed * 100 + step * 10) + static_cast<unsigned>(rank_)));
    const auto share = [&](std::size_t first, std::size_t stride) {
      for (std::size_t k = first; k < order.size(); k += stride) mark_one(step, batch, order[k]);
    };
    if (!script_.threads()) return share(0, 1);
    std::thread other([&] { share(1, 2); });
    share(0, 2);
    other.join();
  }
  void mark_one(std::size_t step, std::size_t batch, std::size_t i) {
    if (script_.says_unused(rank_, step, batch, i)) return reducer_->mark_unused(i);
    reducer_->mark_ready(i);
  }
  void mark_last(std::size_t step, std::optional<std::size_t> but) {
    if (script_.samples(rank_, step) > 0) mark(step, script_.batches(step) - 1, but);
  }

  /// The step fails by one rank first, and leaves gradients as they are.
  void fail(std::size_t step) {
    const Failure failure = script_.failure(step);
    if (failure == Failure::none) return;
    const int culprit = static_cast<int>(script_.draw_of(kRanks, 17, step));  // It has data.
    std::optional<std::size_t> wrong;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (!frozen_[i] && script_.marks(culprit, step, script_.batches(step) - 1, i) > 0) wrong = i;
    }
    if (!wrong) return;
    const bool is_mine = rank_ == culprit;
    const float right = gradient(*wrong)[0];
    if (is_mine && failure == Failure::not_finite)
      gradient(*wrong)[0] = std::numeric_limits<float>::infinity();
    if (script_.samples(rank_, step) > 0) keep();
    mark_last(step, is_mine && failure == Failure::not_marked ? wrong : std::nullopt);
    if (is_mine && failure == Failure::marked_twice)
      testing::thrown_by([&] { reducer_->mark_ready(*wrong); });
    testing::thrown_by([&] { reducer_->wait(); });
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (frozen_[i]) continue;
      for (std::size_t e = 0; e < values_[i].size(); ++e)
        ASSERT_EQ(gradient(i)[e], before_[i][e])
            << where(step, i, e) << " after failure " << static_cast<int>(failure);
    }
    if (is_mine) gradient(*wrong)[0] = right;
    if (script_.begins()) {
      ASSERT_TRUE(reducer_->begin_step(script_.samples(rank_, step)));
    }
  }

  void check(std::size_t step) {
    if (options_.overlap_forward) reducer_->wait_gradients();
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (frozen_[i]) continue;
      bool used = !options_.find_unused && !options_.static_graph;
      for (int r = 0; r < kRanks; ++r) used = used || script_.uses(r, step, i);
      EXPECT_EQ(reducer_->used(i), used) << where(step, i, 0);
      for (std::size_t e = 0; e < values_[i].size(); ++e)
        ASSERT_NEAR(gradient(i)[e], script_.average(step, i, e), 1e-3) << where(step, i, e);
    }
  }
  std::string where(std::size_t step, std::size_t i, std::size_t e) const {
    return "training " + std::to_string(script_.seed) + ", rank " + std::to_string(rank_) + ", step " +
           std::to_string(step) + ", parameter " + std::to_string(i) + ", element " + std::to_string(e);
  }

  const Script script_;
  const int rank_;
  ReducerOptions options_;
  std::vector<std::vector<float>> values_, gradients_, before_;
  std::vector<bool> frozen_, written_;
  std::optional<Reducer> reducer_;
};

TEST(RandomTrainings, OfTwoReducersByTurnsGiveTheResultOfOneProcess) {
  const auto trainings = static_cast<unsigned>(testing::count_option(kTrainings));
  for (unsigned seed = 0; seed < trainings && !::testing::Test::HasFailure(); ++seed) {
    testing::on_ranks(kRanks, seed % 5 == 1 ? "tcp" : "shm", [&](Communicator& communicator) {
      Training one(communicator, {2 * seed}), other(communicator, {2 * seed + 1});
      for (std::size_t step = 0; step < kTrainingSteps && !::testing::Test::HasFailure(); ++step) {
        one.step(step);
        other.step(step);
      }
    });
  }
}

}  // namespace
}  // namespace lockstep
