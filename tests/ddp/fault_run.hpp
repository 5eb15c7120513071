// One rank's part of a Round, with a Reducer or a ShardedOptimizer.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>

#include "ddp/gradient_math.hpp"
#include "tests/ddp/fault_round.hpp"
#include "tests/ddp/fault_trainer.hpp"
#include "tests/ddp/typed_numbers.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {

struct Unwound {};  // Out of backward, or out of the loop.

template <typename Trainer>
class FaultRun {
 public:
  FaultRun(Communicator& communicator, const Round& round, std::string directory)
      : communicator_(communicator),
        round_(round),
        directory_(std::move(directory)),
        rank_(communicator.rank()) {
    for (const RoundTensor& t : round.tensors) {
      const std::size_t bytes = t.elements * size_of(t.type);
      auto& value = values_.emplace_back(bytes);
      auto& gradient = gradients_.emplace_back(bytes);
      before_.emplace_back(bytes);
      auto& expected = expected_.values.emplace_back(t.elements);
      expected_.momentum.emplace_back(t.elements);
      for (std::size_t e = 0; e < t.elements; ++e) {
        expected[e] = static_cast<double>((values_.size() + e) % 5);
        store(t.type, value.data(), e, expected[e]);
      }
      list_.push_back({"t" + std::to_string(list_.size()),
                       t.type,
                       {t.elements},
                       value.data(),
                       round.views(rank_) ? nullptr : gradient.data()});
    }
  }

  void construct() {
    if (round_.on_split) own_ = communicator_.split(0, rank_);
    if (round_.fault == Fault::differs) differ();
    make_trainer();
    if (round_.two_trainers)
      second_.emplace(group(),
                      std::vector<Parameter>{{"s", DataType::f32, {kSecond}, second_value_, nullptr}});
  }

  void run(std::size_t steps) {
    for (std::size_t n = 0; n < steps; ++n) {
      number_ = n;
      const bool swaps = round_.fault == Fault::swapped && fault_now();
      if (swaps) second_step(n);
      if (round_.fault != Fault::skipped || !fault_now()) step(n);
      if (second_ && !swaps) second_step(n);
    }
  }

  /// After an Error: where docs/ddp.md promises it, gradients are what backward left.
  void expect_untouched() const {
    const ReducerOptions& o = round_.options;
    const bool may_check_first = o.check_first.value_or(round_.hook.empty() && !o.overlap_forward);
    const bool survive = kSharded || !round_.views(rank_) || !may_check_first || !round_.hook.empty();
    if (in_step_ && survive) expect_as_before();
  }

  void destroy() {
    trainer_.reset();
    second_.reset();
    own_.reset();
  }

  /// By step, what checkpoints may hold.
  const std::map<std::uint64_t, Reference>& saved() const { return saved_; }
  /// From the checkpoint, if there is one, of a run that `saved` what it may hold.
  void restore(const std::map<std::uint64_t, Reference>& saved) {
    if constexpr (kSharded) {
      if (saved.empty()) return;
      CheckpointInfo info;
      try {
        info = read_checkpoint_info(directory_);
      } catch (const Error&) {  // The first one was not finished.
        return;
      }
      load_checkpoint(group(), directory_, trainer_->slices(info));
      trainer_->restored(info.step);
      expected_ = saved.at(info.step);
      if (round_.exact()) expect_values();
    }
  }

 private:
  static constexpr bool kSharded = std::is_same_v<Trainer, ShardedOptimizer>;
  static constexpr double kRate = 0.25, kMomentum = 0.5;
  static constexpr std::size_t kSecond = 64;

  Communicator& group() { return own_ ? *own_ : communicator_; }
  bool fault_now() const { return rank_ == round_.culprit && number_ == round_.fault_step; }
  /// The parameter that an error of use is about.
  std::size_t target() const { return round_.dice(10, 0, 0) % list_.size(); }

  // ---- making it

  /// The group stays usable.
  void differ() {
    const auto right = list_;
    if (rank_ == round_.culprit) list_.back().shape = {1, list_.back().shape.front(), 1};
    const Error error = testing::thrown_by([this] { make_trainer(); });
    EXPECT_EQ(error.code(), ErrorCode::mismatch) << error.what();
    EXPECT_EQ(error.culprit(), round_.ranks == 2 ? 1 : round_.culprit) << error.what();
    list_ = right;
  }

  void make_trainer() {
    const auto errs_now = [this](Fault fault) { return round_.fault == fault && fault_now() && !repeated_; };
    ReducerOptions o = round_.options;
    o.hook = hook_of(round_, errs_now);
    if constexpr (kSharded) {
      trainer_.emplace(group(), list_, std::make_shared<SgdMomentum>(kRate, kMomentum),
                       sharded_options_of(round_, o.hook));
    } else {
      o.gradients_as_views = round_.views(rank_);
      if (round_.seed % 4 == 0) o.gradients_moved = [] {};
      trainer_.emplace(group(), list_, o);
    }
  }

  // ---- a step

  void step(std::size_t n) {
    if (round_.fault_mark == 0) act();
    freeze(n);
    for (std::size_t i = 0; i < list_.size(); ++i) keep(i);
    in_step_ = true;
    repeated_ = false;
    if (!attempt(n)) {
      expect_as_before();
      repeated_ = true;
      EXPECT_TRUE(attempt(n));
    }
    in_step_ = false;
    if (round_.fault_mark > list_.size() + 1) act();
    finish(n);
  }

  void freeze(std::size_t n) {
    if constexpr (!kSharded) {
      if (!round_.freezes || (n != 1 && n != 3)) return;
      std::vector<std::size_t> list;
      for (std::size_t i = 0; i < list_.size(); ++i) {
        if (round_.frozen(n, i)) list.push_back(i);
      }
      trainer_->freeze(list);
    }
  }

  /// What is there is what a step that fails leaves.
  void keep(std::size_t i) {
    if (before_[i].empty()) return;
    std::memcpy(before_[i].data(), trainer_->gradient(i), before_[i].size());
  }
  void expect_as_before() const {
    for (std::size_t i = 0; i < list_.size(); ++i) {
      if (before_[i].empty()) continue;
      EXPECT_EQ(std::memcmp(before_[i].data(), trainer_->gradient(i), before_[i].size()), 0)
          << "gradient " << i << " was changed by a step that failed, on rank " << rank_;
    }
  }

  /// False when the step failed by the round's error of use, and is to be repeated.
  bool attempt(std::size_t n) {
    if (round_.uneven && !trainer_->begin_step(round_.samples(rank_, n)))
      throw std::runtime_error("nobody has data");
    if (round_.samples(rank_, n) > 0) backward(n);
    if (round_.fault_mark <= list_.size() + 1) act();
    const bool fails = !repeated_ && n == round_.fault_step && is_error_of_use(round_.fault) && can_fail();
    if (!fails) {
      trainer_->wait();
      return true;
    }
    const Error error = testing::thrown_by([this] { trainer_->wait(); });
    if (error.code() != ErrorCode::invalid_argument) throw error;
    EXPECT_EQ(error.culprit(), round_.culprit) << error.what();
    return false;
  }

  /// Whether the culprit has what its mistake takes.
  bool can_fail() const {
    if (round_.fault == Fault::wrong_result) return true;  // Of ranks without data, too.
    const std::size_t n = round_.fault_step;
    const ReducerOptions& o = round_.options;
    const bool learns = o.static_graph && (n == 0 || round_.samples(round_.culprit, 0) == 0);
    if (!round_.uses(round_.culprit, n, round_.batches() - 1, target())) return false;
    if (round_.fault == Fault::not_finite) return o.check_finite && round_.tensors[target()].elements > 0;
    return !learns && (round_.fault == Fault::marked_twice || !o.find_unused);
  }
  bool errs(Fault fault) const { return round_.fault == fault && fault_now() && !repeated_ && can_fail(); }

  void backward(std::size_t n) {
    wait_for_late();
    const std::size_t last = round_.batches() - 1;
    for (std::size_t b = 0; b < last && !repeated_; ++b) {
      const auto pause = trainer_->no_sync();
      for (std::size_t i = 0; i < list_.size(); ++i) write(n, b, i);
      mark_all(n, b);
      trainer_->wait();
    }
    for (std::size_t i = 0; i < list_.size(); ++i) write(n, last, i);
    mark_all(n, last);
    if (errs(Fault::marked_twice)) {
      const Error error = testing::thrown_by([this] { trainer_->mark_ready(target()); });
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    }
  }

  /// Each number is written anew: what one batch adds to the others is known.
  void write(std::size_t n, std::size_t batch, std::size_t i) {
    if (!round_.uses(rank_, n, batch, i)) return;
    void* gradient = trainer_->gradient(i);
    for (std::size_t e = 0; e < round_.tensors[i].elements; ++e) {
      int sum = 0;
      for (std::size_t b = 0; b <= batch; ++b) {
        if (round_.uses(rank_, n, b, i)) sum += round_.local(rank_, n, b, i, e);
      }
      store(list_[i].type, gradient, e, sum);
    }
    if (batch + 1 == round_.batches() && i == target() && errs(Fault::not_finite))
      store(list_[i].type, gradient, round_.tensors[i].elements / 2, std::numeric_limits<float>::infinity());
    keep(i);
  }

  void mark_all(std::size_t n, std::size_t batch) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < list_.size(); ++i) order.insert(order.end(), round_.tensors[i].marks, i);
    std::shuffle(order.begin(), order.end(),
                 std::mt19937(round_.dice(6, n, batch, static_cast<std::size_t>(rank_))));
    const auto mark_every = [&](std::size_t from, std::size_t stride) {
      for (std::size_t k = from; k < order.size(); k += stride) {
        if (stride == 1 && batch + 1 == round_.batches() && round_.fault_mark == k + 1) act();
        mark(n, batch, order[k]);
      }
    };
    if (!round_.two_threads) return mark_every(0, 1);
    std::thread other([&] { mark_every(0, 2); });
    mark_every(1, 2);
    other.join();
  }

  void mark(std::size_t n, std::size_t batch, std::size_t i) {
    const bool says_unused = round_.options.find_unused && !round_.options.static_graph && i % 2 == 0;
    if (round_.uses(rank_, n, batch, i)) {
      if (i != target() || !errs(Fault::not_marked)) trainer_->mark_ready(i);
    } else if (says_unused) {
      trainer_->mark_unused(i);
    }
  }

  void wait_for_late() {
    for (std::size_t i = 0; i < list_.size(); ++i) {
      if constexpr (kSharded) trainer_->wait_parameters(i);
      if constexpr (!kSharded) trainer_->wait_gradients(i);
    }
  }

  void second_step(std::size_t n) {
    auto* gradient = static_cast<float*>(second_->gradient(0));
    for (std::size_t e = 0; e < kSecond; ++e)
      gradient[e] = static_cast<float>(n + e + static_cast<std::size_t>(rank_));
    second_->mark_ready(0);
    second_->wait();
    for (std::size_t e = 0; e < kSecond; ++e)
      EXPECT_NEAR(gradient[e], static_cast<double>(n + e) + (round_.ranks - 1) / 2.0, 1e-3);
  }

  // ---- its end

  void finish(std::size_t n) {
    if constexpr (kSharded) trainer_->step();
    wait_for_late();
    if (round_.fault == Fault::skipped) return;  // The ranks have gradients of different steps.
    expect_used(n);
    follow(n);
    if (round_.exact() && kSharded) expect_values();
    if (round_.exact() && !kSharded) expect_gradients(n);
    expect_equal_replicas(n);
    save(n);
  }

  void expect_used(std::size_t n) {
    const bool always = !round_.options.find_unused && !round_.options.static_graph;
    for (std::size_t i = 0; i < list_.size(); ++i)
      EXPECT_EQ(trainer_->used(i), !round_.frozen(n, i) && (always || round_.any_uses(n, i))) << i;
  }

  void follow(std::size_t n) {
    for (std::size_t i = 0; kSharded && i < list_.size(); ++i) {
      for (std::size_t e = 0; e < round_.tensors[i].elements; ++e) {
        double& velocity = expected_.momentum[i][e];
        velocity = kMomentum * velocity + round_.reduced(n, i, e);
        expected_.values[i][e] -= kRate * velocity;
      }
    }
  }

  void expect_near(std::size_t i, std::size_t e, const void* data, double expected, const char* what) const {
    ASSERT_NEAR(load(list_[i].type, data, e), expected,
                (1 + std::abs(expected)) * 2 * tolerance(list_[i].type, round_.hook))
        << what << " " << i << " (" << name_of(list_[i].type) << "), element " << e << ", after step "
        << number_ << " on rank " << rank_;
  }
  void expect_values() const {
    for (std::size_t i = 0; i < list_.size(); ++i) {
      for (std::size_t e = 0; e < round_.tensors[i].elements; ++e)
        expect_near(i, e, list_[i].value, expected_.values[i][e], "value");
    }
  }
  void expect_gradients(std::size_t n) const {
    for (std::size_t i = 0; i < list_.size(); ++i) {
      for (std::size_t e = 0; !round_.frozen(n, i) && e < round_.tensors[i].elements; ++e)
        expect_near(i, e, trainer_->gradient(i), round_.reduced(n, i, e), "gradient");
    }
  }

  void expect_equal_replicas(std::size_t n) {
    std::uint64_t hash = 0;
    for (std::size_t i = 0; i < list_.size(); ++i) {
      if (round_.frozen(n, i)) continue;
      const void* data = kSharded ? list_[i].value : trainer_->gradient(i);
      hash = hash * 31 + internal::hash_bytes(data, before_[i].size());
    }
    std::vector<std::uint64_t> all(static_cast<std::size_t>(round_.ranks));
    group().all_gather(&hash, all.data(), 1, DataType::u64);
    for (const std::uint64_t other : all) EXPECT_EQ(other, hash) << "replicas differ after step " << n;
  }

  void save(std::size_t n) {
    if constexpr (kSharded) {
      if (round_.dice(7, n, 0) % 2 == 0) return;
      saved_[trainer_->steps()] = expected_;  // It may be there though this rank does not hear of it.
      save_checkpoint(group(), directory_, trainer_->slices(), {.step = trainer_->steps()});
    }
  }

  /// What happens to this rank at the moment that the round says, or at the next one that comes.
  void act() {
    if (!fault_now() || std::exchange(acted_, true)) return;
    if (round_.fault == Fault::killed) ::raise(SIGKILL);
    if (round_.fault == Fault::paused) ::raise(SIGSTOP);
    if (round_.fault == Fault::left || round_.fault == Fault::unwound) throw Unwound();
  }

  Communicator& communicator_;
  std::optional<Communicator> own_;
  const Round round_;
  const std::string directory_;
  const int rank_;
  std::vector<std::vector<std::byte>> values_, gradients_, before_;
  std::vector<Parameter> list_;
  float second_value_[kSecond] = {};
  std::optional<Trainer> trainer_;
  std::optional<Reducer> second_;
  Reference expected_;
  std::map<std::uint64_t, Reference> saved_;
  std::size_t number_ = 0;
  bool in_step_ = false, repeated_ = false, acted_ = false;
};

}  // namespace lockstep
