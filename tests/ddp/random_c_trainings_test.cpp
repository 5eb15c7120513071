// Random trainings through the C API as a foreign trainer makes them, against a formula: calls that are
// refused at random moments and change nothing, lists and options of one rank that no other has, steps that
// fail and are repeated; and at the end of some a rank that aborts, or frees its reducer in the midst of a
// step. `ddp_random_c_trainings_test --operations N` runs N of them, from seed M on with
// `--gtest_random_seed=M`.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "tests/ddp/c_script.hpp"
#include "tests/engine/c_group.hpp"
#include "tests/support/count_option.hpp"
#include "tests/support/sanitized.hpp"

namespace lockstep {
namespace {

using testing::fails;
using testing::last_error_says;
using testing::ok;

class CTraining {
 public:
  CTraining(lockstep_comm_t comm, const CScript& script)
      : comm_(comm), script_(script), rank_(lockstep_rank(comm)), keeps_(script.keeps(rank_)) {
    options_.bucket_bytes = 1 + script.draw_of(3'000, 30);
    options_.first_bucket_bytes = 1 + script.draw_of(400, 31);
    options_.own_gradients = keeps_;
    options_.sum = script.sums();
    options_.weighted = script.weighted();
    options_.find_unused = script.finds_unused();
    options_.static_graph = script.is_static();
    options_.check_finite = 1;
    options_.check_first = script.check_first();
    options_.check_replicas_every = script.draw_of(3, 32);
    options_.overlap_forward = script.overlaps();
    if (script.halves()) options_.hook = "bf16";
    // Lists hold what lies here.
    values_.reserve(kMost), gradients_.reserve(kMost), names_.reserve(kMost), shapes_.reserve(kMost);
  }
  ~CTraining() {
    lockstep_reducer_free(reducer_);
    lockstep_comm_free(comm_);
  }

  void run() {
    for (std::size_t n = 0; n < kTrainingSteps && !::testing::Test::HasFailure(); ++n) step(n);
    if (script_.end() == End::good) return;
    begin(kTrainingSteps);
    script_.odd(99) == rank_ ? leave() : expect_end();
  }

 private:
  static constexpr std::size_t kMost = 64;

  // ---- lists

  std::vector<lockstep_parameter_t> more(std::size_t count) {
    std::vector<lockstep_parameter_t> list;
    for (; count > 0; --count) {
      const std::size_t i = values_.size();
      values_.emplace_back(script_.elements(i), rank_ == 0 ? 1.0f : 7.0f);
      gradients_.emplace_back(script_.elements(i));
      names_.push_back("p" + std::to_string(i));
      shapes_.push_back(script_.elements(i));
      list.push_back({names_[i].c_str(), LOCKSTEP_F32, &shapes_[i], 1, values_[i].data(),
                      keeps_ ? gradients_[i].data() : nullptr});
    }
    return list;
  }

  /// The odd rank's list is none, or another one: all ranks are told, and nobody is harmed.
  template <typename Call>
  void call_wrongly(std::size_t step, const std::vector<lockstep_parameter_t>& right, Call call) {
    const int odd = script_.odd(step);
    const bool mine = rank_ == odd;
    std::vector<lockstep_parameter_t> list = right;
    const std::size_t kind = script_.draw_of(4, 24, step);
    const std::size_t two[] = {1, list.back().shape[0]};
    if (mine && kind == 1) list.back().shape = nullptr;
    if (mine && kind == 2) list.back().type = LOCKSTEP_I32;
    if (mine && kind == 3) list.back().shape = two, list.back().dimensions = 2;
    const lockstep_error_t result = call(mine && kind == 0 ? nullptr : list.data(), list.size());
    const std::string text = lockstep_last_error();
    if (kind == 3) {  // An innocent one may be named where there are two: they differ.
      EXPECT_EQ(result, script_.ranks() == 1 ? LOCKSTEP_OK : LOCKSTEP_MISMATCH) << text;
    } else {
      EXPECT_EQ(result, mine ? LOCKSTEP_INVALID_ARGUMENT : LOCKSTEP_REFUSED) << text;
      EXPECT_EQ(lockstep_last_culprit(), odd) << text;
    }
    EXPECT_EQ(lockstep_state(comm_), LOCKSTEP_OK);
  }

  void grow(std::size_t step) {
    const std::size_t count = script_.joining(step);
    if (count == 0) return;
    const auto list = more(count);
    const bool errs =
        script_.errs_first(step) && !(script_.ranks() == 1 && script_.draw_of(4, 24, step) == 3);
    if (step > 0) {
      const auto add = [&](const lockstep_parameter_t* of, std::size_t n) {
        return lockstep_reducer_add_parameters(reducer_, of, n);
      };
      if (errs) call_wrongly(step, list, add);
      return ok(add(list.data(), list.size()));
    }
    const auto create = [&](const lockstep_parameter_t* of, std::size_t n) {
      const lockstep_error_t result = lockstep_reducer_create(comm_, of, n, &options_, &reducer_);
      EXPECT_EQ(result == LOCKSTEP_OK, reducer_ != nullptr);
      return result;
    };
    if (errs) call_wrongly(step, list, create);
    ok(create(list.data(), list.size()));
    for (const auto& value : values_)
      for (const float v : value) EXPECT_EQ(v, 1) << "rank 0's";
  }

  // ---- a step

  float* gradient(std::size_t i) {
    void* data = nullptr;
    ok(lockstep_reducer_gradient(reducer_, i, &data));
    return static_cast<float*>(data);
  }
  bool has_data(std::size_t n) const { return script_.samples(rank_, n) > 0; }

  void step(std::size_t n) {
    grow(n);
    keep();
    begin(n);
    for (std::size_t b = 0; has_data(n) && b < script_.batches(n); ++b) {
      const bool last = b + 1 == script_.batches(n);
      if (!last) ok(lockstep_reducer_no_sync(reducer_, 1));
      compute(n, b);
      if (last) break;
      mark(n, b, kMost);
      ok(lockstep_reducer_wait(reducer_));  // Does nothing.
      ok(lockstep_reducer_no_sync(reducer_, 0));
    }
    if (fail(n)) begin(n);
    if (has_data(n)) mark(n, script_.batches(n) - 1, kMost);
    ok(lockstep_reducer_wait(reducer_));
    check(n);
  }

  void begin(std::size_t n) {
    if (script_.overlaps()) ok(lockstep_reducer_wait_gradients(reducer_, LOCKSTEP_ALL_GRADIENTS));
    if (!script_.begins()) return;
    int goes_on = 7;
    ok(lockstep_reducer_begin_step(reducer_, script_.samples(rank_, n), &goes_on));
    EXPECT_EQ(goes_on, 1);
    EXPECT_EQ(lockstep_reducer_begin_step(reducer_, 1, &goes_on), LOCKSTEP_INVALID_ARGUMENT);
  }
  void keep() {
    before_.clear();
    for (std::size_t i = 0; i < values_.size(); ++i)
      before_.emplace_back(gradient(i), gradient(i) + values_[i].size());
  }
  void compute(std::size_t n, std::size_t batch) {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (!script_.uses(rank_, n, batch, i)) continue;
      for (std::size_t e = 0; e < values_[i].size(); ++e)
        gradient(i)[e] = static_cast<float>(script_.local(rank_, n, batch + 1, i, e));
    }
  }
  void mark(std::size_t n, std::size_t batch, std::size_t but) {
    for (const std::size_t i : order(n, batch)) {
      nuisance(n, batch, i);
      if (i == but) continue;
      marked_ =
          marked_ || (batch + 1 == script_.batches(n) && (script_.uses(rank_, n, batch, i) || i % 2 == 0));
      if (script_.uses(rank_, n, batch, i)) {
        ok(lockstep_reducer_mark_ready(reducer_, i));
      } else if (i % 2 == 0) {  // Others wait() finds.
        ok(lockstep_reducer_mark_unused(reducer_, i));
      }
    }
    marked_ = false;
  }
  std::vector<std::size_t> order(std::size_t n, std::size_t batch) const {
    std::vector<std::size_t> all(values_.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    for (std::size_t i = all.size(); i > 1; --i)
      std::swap(all[i - 1], all[script_.draw_of(i, 25, n * 4 + batch, i, static_cast<std::size_t>(rank_))]);
    return all;
  }

  /// A call that is refused, and changes nothing.
  void nuisance(std::size_t n, std::size_t batch, std::size_t i) {
    const std::size_t count = values_.size();
    const bool last = batch + 1 == script_.batches(n);
    const bool in_midst = !last || script_.begins() || marked_;
    void* nothing = nullptr;
    int goes_on = 7;
    const auto refused = [&](lockstep_error_t result) {
      EXPECT_EQ(result, LOCKSTEP_INVALID_ARGUMENT) << lockstep_last_error();
    };
    switch (script_.draw_of(40, 26, n * 4 + batch, i, static_cast<std::size_t>(rank_))) {
      case 0:
        return refused(lockstep_reducer_mark_ready(reducer_, count));
      case 1:
        return refused(lockstep_reducer_mark_unused(reducer_, count + 5));
      case 2:
        if (!script_.finds_unused()) refused(lockstep_reducer_mark_unused(reducer_, i));
        return;
      case 3:
        return refused(lockstep_reducer_gradient(reducer_, count, &nothing));
      case 4:
        return refused(lockstep_reducer_gradient(reducer_, 0, nullptr));
      case 5:
        return refused(lockstep_reducer_wait_gradients(reducer_, count));
      case 6:
        return refused(lockstep_reducer_begin_step(reducer_, 3, nullptr));
      case 7:
        if (in_midst) refused(lockstep_reducer_begin_step(reducer_, 3, &goes_on));
        return;
      case 8:
        if (in_midst) refused(lockstep_reducer_clip(reducer_, 1, nullptr));
        return;
      case 9:
        if (marked_) refused(lockstep_reducer_no_sync(reducer_, 1));
        return;
      case 10:
        if (last) ok(lockstep_reducer_no_sync(reducer_, 0));
        return;
      case 11:
        EXPECT_NE(lockstep_reducer_report(reducer_), nullptr);
        return;
      default:
        return;
    }
  }

  /// The step fails by rank 0 first, and leaves gradients as they are.
  bool fail(std::size_t n) {
    const Failure failure = script_.failure(n);
    std::size_t wrong = kMost;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (script_.uses(0, n, script_.batches(n) - 1, i) && !values_[i].empty()) wrong = i;
    }
    if (failure == Failure::none || wrong == kMost) return false;
    const bool mine = rank_ == 0;
    const float right = mine ? gradient(wrong)[0] : 0;
    if (mine && failure == Failure::not_finite) gradient(wrong)[0] = std::numeric_limits<float>::quiet_NaN();
    if (has_data(n)) keep();
    if (has_data(n)) mark(n, script_.batches(n) - 1, mine && failure == Failure::not_marked ? wrong : kMost);
    const std::string name = "\"p" + std::to_string(wrong) + "\"";
    if (mine && failure == Failure::marked_twice) {
      EXPECT_TRUE(fails(lockstep_reducer_mark_ready(reducer_, wrong), LOCKSTEP_INVALID_ARGUMENT, name, 0));
    }
    EXPECT_TRUE(fails(lockstep_reducer_wait(reducer_), LOCKSTEP_INVALID_ARGUMENT,
                      failure == Failure::not_finite ? "parameter" : name, 0) ||
                last_error_says(name));
    expect_as_before(n);
    if (mine) gradient(wrong)[0] = right;
    return true;
  }
  void expect_as_before(std::size_t n) {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      for (std::size_t e = 0; e < values_[i].size(); ++e) {
        const float now = gradient(i)[e], then = before_[i][e];
        ASSERT_TRUE(now == then || (std::isnan(now) && std::isnan(then))) << where(n, i, e) << ", failed";
      }
    }
  }

  void check(std::size_t n) {
    double squares = 0;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (script_.overlaps()) ok(lockstep_reducer_wait_gradients(reducer_, i));
      for (std::size_t e = 0; e < values_[i].size(); ++e) {
        const double expected = script_.reduced(n, i, e);
        const double tolerance = (script_.halves() ? 0.5 : 1e-3) * (script_.sums() ? 4 : 1);
        ASSERT_NEAR(gradient(i)[e], expected, tolerance) << where(n, i, e);
        squares += static_cast<double>(gradient(i)[e]) * gradient(i)[e];
      }
    }
    const std::string report = lockstep_reducer_report(reducer_);
    EXPECT_EQ(report.find("step " + std::to_string(n + 1) + ":"), 0u) << report;
    if (script_.draw_of(3, 27, n) == 0) {
      double norm = -1;
      ok(lockstep_reducer_clip(reducer_, 1, &norm));
      EXPECT_NEAR(norm, std::sqrt(squares), 1e-4 * (1 + norm));
    }
    for (std::size_t i = 0; i < values_.size(); ++i)
      for (std::size_t e = 0; e < values_[i].size(); ++e) values_[i][e] -= 0.1f * gradient(i)[e];
  }

  // ---- its end

  void leave() {
    const std::size_t n = kTrainingSteps;
    const auto marks = order(n, 0);
    const std::size_t until = script_.draw_of(marks.size(), 28);
    const bool may_mark = has_data(n);
    for (std::size_t k = 0; k < until && may_mark; ++k) ok(lockstep_reducer_mark_ready(reducer_, marks[k]));
    if (until == 0 && !script_.begins()) ok(lockstep_reducer_mark_ready(reducer_, marks[0]));
    if (script_.end() == End::aborted) {
      ok(lockstep_abort(comm_, "the coffee is cold"));
      for (std::size_t k = until; k < marks.size(); ++k) lockstep_reducer_mark_ready(reducer_, marks[k]);
      EXPECT_TRUE(fails(lockstep_reducer_wait(reducer_), LOCKSTEP_ABORTED, "the coffee is cold", rank_));
      EXPECT_EQ(lockstep_state(comm_), LOCKSTEP_ABORTED);
      return;
    }
    if (script_.end() == End::freed_after_comm) lockstep_comm_free(std::exchange(comm_, nullptr));
    lockstep_reducer_free(std::exchange(reducer_, nullptr));
  }
  void expect_end() {
    const int odd = script_.odd(99);
    for (std::size_t k = 0; k < values_.size() && has_data(kTrainingSteps); ++k)
      lockstep_reducer_mark_ready(reducer_, k);
    EXPECT_TRUE(fails(lockstep_reducer_wait(reducer_), LOCKSTEP_ABORTED,
                      script_.end() == End::aborted ? "the coffee is cold" : "in the midst of step", odd));
    EXPECT_EQ(lockstep_state(comm_), LOCKSTEP_ABORTED);
    lockstep_reducer_t again = nullptr;
    EXPECT_NE(lockstep_reducer_create(comm_, nullptr, 0, nullptr, &again), LOCKSTEP_OK);
    EXPECT_EQ(again, nullptr);
  }

  std::string where(std::size_t step, std::size_t i, std::size_t e) const {
    return "rank " + std::to_string(rank_) + ", step " + std::to_string(step) + ", parameter " +
           std::to_string(i) + ", element " + std::to_string(e);
  }

  lockstep_comm_t comm_;
  const CScript script_;
  const int rank_;
  const bool keeps_;
  lockstep_reducer_options_t options_{};
  lockstep_reducer_t reducer_ = nullptr;
  std::vector<std::vector<float>> values_, gradients_, before_;
  std::vector<std::string> names_;
  std::vector<std::size_t> shapes_;
  bool marked_ = false;  // In this step, outside of no_sync.
};

void play(const CScript& script) {
  std::vector<lockstep_comm_t> comms(static_cast<std::size_t>(script.ranks()));
  ok(lockstep_local_group(script.ranks(), script.transports(), comms.data()));
  std::vector<std::thread> threads;
  for (const lockstep_comm_t comm : comms) {
    threads.emplace_back([&script, comm] {
      SCOPED_TRACE("seed " + std::to_string(script.seed));
      CTraining training(comm, script);
      try {
        training.run();
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << lockstep_rank(comm) << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(RandomCTrainings, GiveTheResultOfOneProcessWhateverIsRefused) {
  const auto first = static_cast<std::size_t>(GTEST_FLAG_GET(random_seed));
  const auto trainings = static_cast<std::size_t>(testing::count_option(testing::runs_of(60)));
  for (std::size_t n = 0; n < trainings && !HasFailure(); ++n) play({first + n});
}

}  // namespace
}  // namespace lockstep
