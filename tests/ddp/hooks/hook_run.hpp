// One rank's part of a phase of a HookScript, with a Reducer or a ShardedOptimizer.
//
// The law that is checked: what the values have lost, and what still waits in the hooks, is together what all
// steps were due. Gradient descent at a fixed rate makes the values the sum of all results.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <type_traits>
#include <utility>

#include "ddp/gradient_math.hpp"
#include "tests/ddp/hooks/hook_script.hpp"
#include "tests/ddp/hooks/saboteur.hpp"
#include "tests/ddp/sharded/phases.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {

template <typename Trainer>
class HookRun {
 public:
  HookRun(Communicator& communicator, const HookScript& script, std::size_t phase, std::string directory,
          std::map<std::string, Ledger> saved)
      : communicator_(communicator),
        script_(script),
        phase_(phase),
        directory_(std::move(directory)),
        rank_(communicator.rank()),
        ranks_(communicator.size()),
        saved_(std::move(saved)),
        inner_(script.make_hook()) {
    const std::size_t throws_at = rank_ == script.culprit(phase) ? script.throws_at(phase) : 0;
    hook_ = std::make_shared<Saboteur>(inner_, throws_at, script.draw_of(8, 40, phase));
  }

  /// By what their checkpoints say.
  const std::map<std::string, Ledger>& saved() const { return saved_; }
  /// The call in which this rank's hook threw, if it did.
  std::string threw_in() const { return hook_->threw_in(); }

  void run() {
    construct();
    for (std::size_t turn = 0; turn < HookScript::kSteps && !::testing::Test::HasFailure(); ++turn) {
      if (script_.rolls_back(phase_, turn)) restore();
      step(turn);
    }
  }

  /// After an Error, of which the group has gone.
  void expect_untouched() const {
    if (in_wait_) expect_as_before("the group's end");
  }

 private:
  static constexpr bool kSharded = std::is_same_v<Trainer, ShardedOptimizer>;

  // ---- making it

  void construct() {
    const auto info = testing::last_checkpoint(directory_, !saved_.empty());
    const std::size_t count = info ? saved_.at(info->note).due.size() : script_.first_parameters();
    const std::size_t first = kSharded ? std::min(count, script_.first_parameters()) : count;
    const std::vector<Parameter> list = more(first);
    if constexpr (kSharded) {
      ShardedOptions o = sharded_options();
      trainer_.emplace(communicator_, list, std::make_shared<SgdMomentum>(HookScript::kRate, 0.0), o);
    } else {
      trainer_.emplace(communicator_, list, reducer_options());
    }
    if (count > first) trainer_->add_parameters(more(count - first));
    if (info) restore();
  }
  ReducerOptions reducer_options() const {
    ReducerOptions o{.bucket_bytes = 1 + script_.draw_of(8'000, 41, phase_),
                     .first_bucket_bytes = 1 + script_.draw_of(2'000, 42, phase_)};
    o.gradients_as_views = views();
    if (script_.draw_of(2, 43, phase_) == 0) o.gradients_moved = [] {};
    o.average = script_.average();
    o.weighted = script_.weighted();
    o.find_unused = script_.finds_unused();
    o.static_graph = script_.is_static();
    o.check_finite = true;
    o.check_first = script_.check_first(phase_);
    o.hook = hook_;
    return o;
  }
  ShardedOptions sharded_options() const {
    const ReducerOptions o = reducer_options();
    return {.bucket_bytes = o.bucket_bytes,
            .first_bucket_bytes = o.first_bucket_bytes,
            .stage = script_.stage(phase_),
            .average = o.average,
            .values_as_views = script_.values_as_views(phase_),
            .weighted = o.weighted,
            .find_unused = o.find_unused,
            .check_first = script_.check_first(phase_),
            .check_finite = true,
            .hook = hook_};
  }
  bool views() const {
    return kSharded ? script_.stage(phase_) == ZeroStage::optimizer : script_.views(phase_, rank_);
  }

  std::vector<Parameter> more(std::size_t count) {
    std::vector<Parameter> list;
    for (; count > 0; --count) {
      const std::size_t i = values_.size();
      const std::vector<std::size_t> shape = script_.shape(i);
      const std::size_t elements =
          std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>());
      auto& value = values_.emplace_back(elements);
      auto& gradient = gradients_.emplace_back(elements);
      for (std::size_t e = 0; e < elements; ++e) value[e] = rank_ == 0 ? HookScript::initial(i, e) : -1;
      ledger_.due.emplace_back(elements);
      list.push_back(
          {"p" + std::to_string(i), DataType::f32, shape, value.data(), views() ? nullptr : gradient.data()});
    }
    all_.insert(all_.end(), list.begin(), list.end());
    frozen_.resize(all_.size());
    return list;
  }

  std::size_t count() const { return values_.size(); }
  float* gradient(std::size_t i) const { return static_cast<float*>(trainer_->gradient(i)); }
  float* value(std::size_t i) {
    if constexpr (kSharded) return static_cast<float*>(trainer_->value(i));
    return values_[i].data();
  }

  // ---- checkpoints

  void restore() {
    const auto info = testing::last_checkpoint(directory_, !saved_.empty());
    if (!info || saved_.at(info->note).due.size() != count()) return;
    thaw();
    std::vector<TensorSlice> slices;
    if constexpr (!kSharded) slices = slices_to_load(all_);
    const auto of_trainer = trainer_->slices(*info);
    slices.insert(slices.end(), of_trainer.begin(), of_trainer.end());
    testing::expect_misload(communicator_, directory_, slices, script_.culprit(phase_));
    EXPECT_EQ(load_checkpoint(communicator_, directory_, slices).note, info->note);
    trainer_->restored(info->step);
    ledger_ = saved_.at(info->note);
    check(info->step, "restored");
  }

  void save(std::size_t n) {
    if (!script_.saves(n) || std::find(frozen_.begin(), frozen_.end(), true) != frozen_.end()) return;
    if (auto* local = dynamic_cast<LocalSgd*>(inner_.get())) local->average_parameters(true);
    std::vector<TensorSlice> slices;
    if constexpr (!kSharded) slices = slices_to_save(all_, communicator_);
    const auto of_trainer = trainer_->slices();
    slices.insert(slices.end(), of_trainer.begin(), of_trainer.end());
    const std::string note = std::to_string(phase_) + "/" + std::to_string(saves_++);
    saved_[note] = ledger_;  // It may be there though this rank does not hear of it.
    save_checkpoint(communicator_, directory_, slices, {.step = trainer_->steps(), .note = note});
  }

  // ---- a step

  void step(std::size_t turn) {
    const std::size_t n = trainer_->steps();
    std::size_t wanted = script_.first_parameters();
    for (std::size_t m = 0; m <= n; ++m) wanted += script_.joining(m);
    if (wanted > count()) trainer_->add_parameters(more(wanted - count()));
    freeze(n);
    keep();
    begin(n);
    const std::size_t last = script_.batches(n) - 1;
    for (std::size_t b = 0; b < last && script_.samples(rank_, n) > 0; ++b) {
      const auto pause = trainer_->no_sync();
      compute(n, b);
      mark(n, b, {});
      trainer_->wait();  // Does nothing.
    }
    compute(n, last);
    if (fail(n, turn)) begin(n);
    keep_computed(n);
    mark_last(n, {});
    wait();
    finish(n);
  }

  void thaw() {
    if constexpr (!kSharded) {
      if (std::find(frozen_.begin(), frozen_.end(), true) == frozen_.end()) return;
      trainer_->freeze({});
      frozen_.assign(count(), false);
    }
  }
  void freeze(std::size_t n) {
    if constexpr (!kSharded) {
      if (!script_.freezes(n)) return;
      std::vector<std::size_t> list;
      for (std::size_t i = 0; i < count(); ++i) {
        frozen_[i] = script_.frozen(n, i);
        if (frozen_[i]) list.push_back(i);
      }
      trainer_->freeze(list);
    }
  }

  void begin(std::size_t n) {
    if (script_.begins() && !trainer_->begin_step(script_.samples(rank_, n)))
      throw std::runtime_error("nobody has data");
  }

  /// What a step that fails leaves: the gradients, and what the hook keeps.
  void keep() {
    before_.clear();
    for (std::size_t i = 0; i < count(); ++i)
      before_.emplace_back(gradient(i), gradient(i) + values_[i].size());
    hook_before_ = kept();
  }
  void keep_computed(std::size_t n) {
    if (script_.samples(rank_, n) > 0) keep();
  }
  std::map<std::string, std::vector<float>> kept() const {
    std::map<std::string, std::vector<float>> all;
    for (const HookTensor& tensor : inner_->state()) {
      const auto* data = static_cast<const float*>(tensor.slice.data);
      all[tensor.slice.name + " " + std::to_string(tensor.slice.first)].assign(data,
                                                                               data + tensor.slice.count);
    }
    return all;
  }
  void expect_as_before(const std::string& what) const {
    EXPECT_TRUE(kept() == hook_before_) << "the hook is another after " << what << ", on rank " << rank_;
    for (std::size_t i = 0; i < count(); ++i) {
      if (frozen_[i] || before_[i].empty()) continue;
      ASSERT_EQ(std::memcmp(gradient(i), before_[i].data(), before_[i].size() * sizeof(float)), 0)
          << "gradient " << i << " is another after " << what << ", on rank " << rank_;
    }
  }

  void compute(std::size_t n, std::size_t batch) {
    for (std::size_t i = 0; i < count(); ++i) {
      if (frozen_[i] || !script_.uses(rank_, n, batch, i)) continue;
      for (std::size_t e = 0; e < values_[i].size(); ++e)
        gradient(i)[e] = static_cast<float>(script_.local(rank_, n, batch + 1, i, e));
    }
  }
  void mark_last(std::size_t n, std::optional<std::size_t> but) {
    if (script_.samples(rank_, n) > 0) mark(n, script_.batches(n) - 1, but);
  }
  void mark(std::size_t n, std::size_t batch, std::optional<std::size_t> but) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < count(); ++i) {
      if (i != but && script_.uses(rank_, n, batch, i)) order.push_back(i);
    }
    std::shuffle(order.begin(), order.end(),
                 std::mt19937(static_cast<unsigned>(
                     script_.draw_of(1u << 31, 44, n, batch, static_cast<std::size_t>(rank_)))));
    const auto share = [&](std::size_t first, std::size_t stride) {
      for (std::size_t k = first; k < order.size(); k += stride) trainer_->mark_ready(order[k]);
    };
    if (!script_.threads()) return share(0, 1);
    std::exception_ptr thrown;
    std::thread other([&] {
      try {
        share(1, 2);
      } catch (...) {
        thrown = std::current_exception();
      }
    });
    try {
      share(0, 2);
    } catch (...) {
      other.join();
      throw;
    }
    other.join();
    if (thrown) std::rethrow_exception(thrown);
  }

  void wait() {
    in_wait_ = true;
    trainer_->wait();
    in_wait_ = false;
  }

  /// The step fails by one rank first, and leaves everything as it is. False where nobody can fail so.
  bool fail(std::size_t n, std::size_t turn) {
    const Failure failure = script_.failure(phase_, turn);
    if (failure == Failure::none) return false;
    constexpr int kClumsy = 0;  // It has data.
    std::optional<std::size_t> wrong;
    for (std::size_t i = 0; i < count(); ++i) {
      const bool travels = !frozen_[i] && script_.uses(kClumsy, n, script_.batches(n) - 1, i);
      if (travels && !values_[i].empty()) wrong = i;
    }
    if (!wrong) return false;
    const bool mine = rank_ == kClumsy;
    const float right = mine ? gradient(*wrong)[0] : 0;
    if (mine && failure == Failure::not_finite) gradient(*wrong)[0] = std::numeric_limits<float>::infinity();
    keep_computed(n);
    mark_last(n, mine && failure == Failure::not_marked ? wrong : std::nullopt);
    if (mine && failure == Failure::marked_twice) mark_again(*wrong);
    try {
      wait();
      ADD_FAILURE() << "no error was thrown";
    } catch (const Error& error) {
      const bool of_use = error.code() == ErrorCode::invalid_argument && error.culprit() == kClumsy &&
                          std::string(error.what()).find("hook") == std::string::npos;
      if (!of_use) throw;
      in_wait_ = false;
    }
    expect_as_before("failure " + std::to_string(static_cast<int>(failure)));
    if (mine) gradient(*wrong)[0] = right;
    return true;
  }
  void mark_again(std::size_t i) {
    const Error error = testing::thrown_by([&] { trainer_->mark_ready(i); });
    EXPECT_NE(std::string(error.what()).find("already marked"), std::string::npos) << error.what();
  }

  // ---- its end

  void finish(std::size_t n) {
    if constexpr (kSharded) {
      trainer_->step();
      trainer_->wait_parameters();
    } else {
      for (std::size_t i = 0; i < count(); ++i) {
        for (std::size_t e = 0; !frozen_[i] && e < values_[i].size(); ++e)
          values_[i][e] -= static_cast<float>(HookScript::kRate) * gradient(i)[e];
      }
    }
    ledger_.follow(script_, n, ranks_, frozen_);
    bool told = true;
    if (auto* local = dynamic_cast<LocalSgd*>(inner_.get()))
      told = local->average_parameters(script_.draw_of(3, 45, phase_, n) == 0);
    if (told) check(n, "stepped");
    save(n);
  }

  /// What the ranks' hooks have not sent, as it will enter a result.
  std::vector<std::vector<double>> waiting() {
    std::vector<std::vector<double>> all;
    for (const auto& one : values_) all.emplace_back(one.size());
    for (const HookTensor& tensor : inner_->state()) {
      const std::string& name = tensor.slice.name;
      const std::size_t mark = name.find("#residual");
      if (mark == std::string::npos) continue;
      const std::size_t i = std::stoul(name.substr(1, mark - 1));
      const auto* data = static_cast<const float*>(tensor.slice.data);
      for (std::size_t e = 0; e < tensor.slice.count; ++e) all[i][tensor.slice.first + e] = data[e];
    }
    for (auto& one : all)
      communicator_.all_reduce(one.data(), one.data(), one.size(), DataType::f64,
                               script_.sums() ? ReduceOp::sum : ReduceOp::avg);
    return all;
  }

  void check(std::size_t n, const char* what) {
    std::uint64_t hash = 0;
    for (std::size_t i = 0; i < count(); ++i)
      hash = hash * 31 + internal::hash_bytes(value(i), values_[i].size() * sizeof(float));
    testing::expect_replicas_alike(communicator_, hash, std::string(what) + " " + std::to_string(n));
    const auto left = waiting();
    const double tolerance = script_.tolerance() * ledger_.largest;
    for (std::size_t i = 0; i < count(); ++i) {
      for (std::size_t e = 0; !frozen_[i] && e < values_[i].size(); ++e) {
        const double got = (HookScript::initial(i, e) - value(i)[e]) / HookScript::kRate;
        ASSERT_NEAR(got + left[i][e], ledger_.due[i][e], tolerance)
            << what << " " << n << ": parameter " << i << ", element " << e << ", of which " << left[i][e]
            << " waits, on rank " << rank_;
      }
    }
  }

  Communicator& communicator_;
  const HookScript script_;
  const std::size_t phase_;
  const std::string directory_;
  const int rank_, ranks_;
  std::map<std::string, Ledger> saved_;
  const std::shared_ptr<CommunicationHook> inner_;
  std::shared_ptr<Saboteur> hook_;
  std::vector<std::vector<float>> values_, gradients_, before_;
  std::map<std::string, std::vector<float>> hook_before_;
  std::vector<Parameter> all_;
  std::vector<bool> frozen_;
  Ledger ledger_;
  std::size_t saves_ = 0;
  bool in_wait_ = false;
  std::optional<Trainer> trainer_;
};

}  // namespace lockstep
