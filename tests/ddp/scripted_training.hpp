// A training by a script (training_script.hpp), and what every step of it must give.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/ddp/training_script.hpp"
#include "tests/ddp/typed_numbers.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep::testing {

/// `Side` is what trains: a reducer on the host or on a device. It has the calls of a Reducer, and
///   add(types, elements)  more parameters; the first ones make the reducer
///   gradient(i)           memory of the host, where gradients are computed and results are found
///   give(i)               what was computed there counts, with the next mark
///   no_sync()             as a Reducer's
///   begin_step(), freeze(), used(), mark_ready(), mark_unused(), wait()
///   undoes()              a step that fails leaves gradients as they were; otherwise they are not looked at
///   tolerance(type)       of what a step gives; nothing where only a twin can tell
template <typename Side>
class ScriptedTraining {
 public:
  template <typename... Arguments>
  ScriptedTraining(const Script& script, int rank, Arguments&&... of_side)
      : script_(script), rank_(rank), side_(std::forward<Arguments>(of_side)...) {
    add(script.first_parameters());
  }

  void step(std::size_t step) {
    if (const std::size_t count = script_.joining(step)) add(count);
    if (script_.freezes(step)) freeze(step);
    keep();
    begin(step);
    for (std::size_t b = 0; script_.samples(rank_, step) > 0 && b < script_.batches(step); ++b) {
      if (b + 1 == script_.batches(step)) {
        compute(step, b);
        break;
      }
      const auto pause = side_.no_sync();
      compute(step, b);
      mark(step, b, {});
    }
    fail(step);
    mark_last(step, {});
    side_.wait();
    check(step);
  }

  Side& side() { return side_; }
  std::size_t parameters() const { return elements_.size(); }
  bool is_frozen(std::size_t i) const { return frozen_[i]; }
  std::size_t bytes(std::size_t i) const { return elements_[i] * size_of(script_.type(i)); }
  std::string where(std::size_t step, std::size_t i, std::size_t e) const {
    return "training " + std::to_string(script_.seed) + ", rank " + std::to_string(rank_) + ", step " +
           std::to_string(step) + ", parameter " + std::to_string(i) + ", element " + std::to_string(e);
  }

 private:
  void add(std::size_t count) {
    std::vector<DataType> types;
    std::vector<std::size_t> elements;
    for (; count > 0; --count) {
      const std::size_t i = elements_.size();
      types.push_back(script_.type(i));
      elements.push_back(script_.elements(i));
      elements_.push_back(elements.back());
    }
    frozen_.resize(elements_.size());
    side_.add(types, elements);
  }
  void freeze(std::size_t step) {
    std::vector<std::size_t> list;
    for (std::size_t i = 0; i < elements_.size(); ++i) {
      frozen_[i] = script_.frozen(step, i);
      if (frozen_[i]) list.push_back(i);
    }
    side_.freeze(list);
  }
  double number(std::size_t i, std::size_t e) { return load(script_.type(i), side_.gradient(i), e); }
  void put(std::size_t i, std::size_t e, double value) {
    store(script_.type(i), side_.gradient(i), e, value);
  }

  /// What a failed step leaves: of a rank without data the gradients before begin_step(), which starts
  /// buckets.
  void keep() {
    before_.clear();
    for (std::size_t i = 0; i < elements_.size(); ++i) {
      const auto* const data = static_cast<const std::byte*>(side_.gradient(i));
      before_.emplace_back(data, data + bytes(i));
    }
  }
  void begin(std::size_t step) {
    written_.assign(elements_.size(), false);
    if (script_.begins()) {
      ASSERT_TRUE(side_.begin_step(script_.samples(rank_, step)));
    }
  }
  void compute(std::size_t step, std::size_t batch) {
    for (std::size_t i = 0; i < elements_.size(); ++i) {
      if (frozen_[i] || script_.marks(rank_, step, batch, i) == 0) continue;
      for (std::size_t e = 0; e < elements_[i]; ++e) {
        const double value = script_.gradient(rank_, step, batch, i, e);
        put(i, e, written_[i] ? number(i, e) + value : value);
      }
      written_[i] = true;
      side_.give(i);
    }
  }

  void mark(std::size_t step, std::size_t batch, std::optional<std::size_t> but) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < elements_.size(); ++i) {
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
    if (script_.says_unused(rank_, step, batch, i)) return side_.mark_unused(i);
    side_.mark_ready(i);
  }
  void mark_last(std::size_t step, std::optional<std::size_t> but) {
    if (script_.samples(rank_, step) > 0) mark(step, script_.batches(step) - 1, but);
  }

  /// The step fails by one rank first, and leaves gradients as they are.
  void fail(std::size_t step) {
    const Failure failure = script_.failure(step);
    if (failure == Failure::none) return;
    const int culprit = script_.with_data(step);
    std::optional<std::size_t> wrong;
    for (std::size_t i = 0; i < elements_.size(); ++i) {
      if (!frozen_[i] && script_.marks(culprit, step, script_.batches(step) - 1, i) > 0) wrong = i;
    }
    if (!wrong) return;
    const bool is_mine = rank_ == culprit, is_infinite = is_mine && failure == Failure::not_finite;
    const double right = is_infinite ? number(*wrong, 0) : 0;  // Of a rank without data buckets travel.
    if (is_infinite) replace(*wrong, std::numeric_limits<double>::infinity());
    if (script_.samples(rank_, step) > 0) keep();
    mark_last(step, is_mine && failure == Failure::not_marked ? wrong : std::nullopt);
    if (is_mine && failure == Failure::marked_twice) thrown_by([&] { side_.mark_ready(*wrong); });
    thrown_by([&] { side_.wait(); });
    expect_as_before(step, failure);
    if (script_.begins()) {
      ASSERT_TRUE(side_.begin_step(script_.samples(rank_, step)));
    }
    if (is_infinite) replace(*wrong, right);
  }
  void replace(std::size_t i, double first) {
    put(i, 0, first);
    side_.give(i);
  }
  void expect_as_before(std::size_t step, Failure failure) {
    for (std::size_t i = 0; i < elements_.size() && side_.undoes(); ++i) {
      if (frozen_[i]) continue;
      ASSERT_EQ(std::memcmp(side_.gradient(i), before_[i].data(), bytes(i)), 0)
          << where(step, i, 0) << " after failure " << static_cast<int>(failure);
    }
  }

  void check(std::size_t step) {
    for (std::size_t i = 0; i < elements_.size(); ++i) {
      if (frozen_[i]) continue;
      EXPECT_EQ(side_.used(i), script_.counts_as_used(step, i)) << where(step, i, 0);
      const std::optional<double> tolerance = side_.tolerance(script_.type(i));
      for (std::size_t e = 0; tolerance && e < elements_[i]; ++e)
        ASSERT_NEAR(number(i, e), script_.average(step, i, e), *tolerance) << where(step, i, e);
    }
  }

  const Script script_;
  const int rank_;
  std::vector<std::size_t> elements_;
  std::vector<std::vector<std::byte>> before_;
  std::vector<bool> frozen_, written_;
  Side side_;
};

}  // namespace lockstep::testing
