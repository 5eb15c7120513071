// One rank's part of a phase of a ShardedScript.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <utility>

#include "ddp/gradient_math.hpp"
#include "tests/ddp/mode_world.hpp"
#include "tests/ddp/sharded/phases.hpp"
#include "tests/ddp/sharded/sharded_script.hpp"
#include "tests/ddp/typed_numbers.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {

class ShardedRun {
 public:
  ShardedRun(Communicator& communicator, const ShardedScript& script, std::size_t phase,
             std::string directory, std::map<std::string, Reference> saved)
      : communicator_(communicator),
        script_(script),
        phase_(phase),
        directory_(std::move(directory)),
        rank_(communicator.rank()),
        ranks_(communicator.size()),
        saved_(std::move(saved)),
        rule_(std::make_shared<Touchy>(Reference::rule(script.adam(), false))),
        odd_rule_(std::make_shared<Touchy>(Reference::rule(script.adam(), true))) {}

  /// By what their checkpoints say.
  const std::map<std::string, Reference>& saved() const { return saved_; }

  void run() {
    construct();
    for (std::size_t turn = 0; turn < ShardedScript::kSteps && !::testing::Test::HasFailure(); ++turn) {
      if (script_.rolls_back(phase_, turn)) restore();
      turn_ = turn;
      step();
    }
  }

  /// This rank has ended the phase for all: it may have no elements that its optimizer would throw at.
  bool has_ended_it() const { return aborted_ || rule_->threw || odd_rule_->threw; }

  /// After an Error, of which the group has gone.
  void expect_untouched() const {
    if (in_backward_) expect_as_before("the group's end");
  }

 private:
  // ---- making it

  void construct() {
    const auto info = testing::last_checkpoint(directory_, !saved_.empty());
    const std::size_t wanted = info ? saved_.at(info->note).tensors.size() : script_.first_parameters();
    ShardedOptions o{.bucket_bytes = 1 + script_.draw_of(8'000, 60, phase_),
                     .first_bucket_bytes = 1 + script_.draw_of(2'000, 61, phase_)};
    o.stage = script_.stage(phase_);
    o.average = script_.average();
    o.values_as_views = script_.values_as_views(phase_);
    if (script_.two_rules())
      o.optimizer_of = [this](const Parameter& p) -> std::shared_ptr<const Optimizer> {
        return script_.is_odd(p) ? odd_rule_ : nullptr;
      };
    o.weighted = script_.weighted();
    o.find_unused = script_.finds_unused();
    o.check_first = script_.check_first(phase_);
    o.check_finite = true;
    if (script_.hook(phase_)) o.hook = all_reduce_hook();
    trainer_.emplace(communicator_, more(script_.first_parameters()), rule_, o);
    if (wanted > count()) trainer_->add_parameters(more(wanted - count()));
    if (info) restore();
  }

  std::vector<Parameter> more(std::size_t added) {
    std::vector<Parameter> list;
    for (; added > 0; --added) {
      const std::size_t i = list_.size() + list.size();
      const auto shape = script_.shape(i);
      const std::size_t elements =
          std::accumulate(shape.begin(), shape.end(), std::size_t{1}, std::multiplies<>());
      const DataType type = script_.type(i);
      auto& value = values_.emplace_back(elements * size_of(type));
      auto& gradient = gradients_.emplace_back(elements * size_of(type));
      auto& expected = expected_.tensors.emplace_back(elements);
      expected_.steps.push_back(0);
      for (std::size_t e = 0; e < elements; ++e) {
        expected[e].value = static_cast<double>((i + e) % 5);
        store(type, value.data(), e, rank_ == 0 ? expected[e].value : -1);
      }
      const bool keeps = script_.stage(phase_) == ZeroStage::gradients;
      list.push_back({"p" + std::to_string(i), type, shape, value.data(), keeps ? gradient.data() : nullptr});
    }
    list_.insert(list_.end(), list.begin(), list.end());
    return list;
  }

  std::size_t count() const { return list_.size(); }
  std::size_t elements(std::size_t i) const { return expected_.tensors[i].size(); }
  std::size_t bytes(std::size_t i) const { return values_[i].size(); }
  DataType type(std::size_t i) const { return list_[i].type; }

  // ---- checkpoints

  void restore() {
    const auto info = testing::last_checkpoint(directory_, !saved_.empty());
    if (!info || saved_.at(info->note).tensors.size() != count()) return;
    const auto slices = script_.hook(phase_) ? trainer_->slices(*info) : trainer_->slices();
    testing::expect_misload(communicator_, directory_, slices, script_.culprit(phase_));
    EXPECT_EQ(load_checkpoint(communicator_, directory_, slices).note, info->note);
    trainer_->restored(info->step);
    expected_ = saved_.at(info->note);
    check(info->step, "restored");
  }
  void save() {
    const std::string note = std::to_string(phase_) + "/" + std::to_string(saves_++);
    saved_[note] = expected_;  // It may be there though this rank does not hear of it.
    save_checkpoint(communicator_, directory_, trainer_->slices(), {.step = trainer_->steps(), .note = note});
  }

  // ---- a step

  void step() {
    const std::size_t n = trainer_->steps();
    std::size_t wanted = script_.first_parameters();
    for (std::size_t m = 0; m <= n; ++m) wanted += script_.joining(m);
    if (wanted > count()) trainer_->add_parameters(more(wanted - count()));
    keep();
    begin(n);
    const std::size_t last = script_.batches(n) - 1;
    for (std::size_t b = 0; b < last && script_.samples(rank_, n) > 0; ++b) {
      const auto pause = trainer_->no_sync();
      compute(n, b);
      mark(n, b, {});
    }
    compute(n, last);
    if (fail(n)) begin(n);
    if (script_.samples(rank_, n) > 0) keep();
    in_backward_ = true;
    mark_last(n, {});
    if (ends(End::aborted_in_backward)) abort();
    trainer_->wait();
    in_backward_ = false;
    finish(n);
  }
  bool ends(End end) const {
    return script_.end(phase_) == end && turn_ == script_.end_turn(phase_) &&
           rank_ == script_.culprit(phase_);
  }

  void abort() {
    aborted_ = true;
    communicator_.abort("no tea");
  }

  void begin(std::size_t n) {
    if (script_.begins() && !trainer_->begin_step(script_.samples(rank_, n)))
      throw std::runtime_error("nobody has data");
  }
  /// What a step that fails leaves.
  void keep() {
    before_.clear();
    for (std::size_t i = 0; i < count(); ++i) {
      const auto* data = static_cast<const std::byte*>(trainer_->gradient(i));
      before_.emplace_back(data, data + bytes(i));
    }
  }
  void expect_as_before(const std::string& what) const {
    for (std::size_t i = 0; i < count(); ++i) {
      if (before_[i].empty()) continue;
      ASSERT_EQ(std::memcmp(trainer_->gradient(i), before_[i].data(), before_[i].size()), 0)
          << "gradient " << i << " is another after " << what << ", on rank " << rank_;
    }
  }
  void compute(std::size_t n, std::size_t batch) {
    for (std::size_t i = 0; i < count(); ++i) {
      if (!script_.uses(rank_, n, batch, i)) continue;
      for (std::size_t e = 0; e < elements(i); ++e)
        store(type(i), trainer_->gradient(i), e, script_.local(rank_, n, batch + 1, i, e));
    }
  }
  void mark_last(std::size_t n, std::optional<std::size_t> but) {
    if (script_.samples(rank_, n) > 0) mark(n, script_.batches(n) - 1, but);
  }
  void mark(std::size_t n, std::size_t batch, std::optional<std::size_t> but) {
    std::vector<std::size_t> order(count());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const std::size_t drawn = script_.draw_of(1u << 31, 62, n, batch, static_cast<std::size_t>(rank_));
    std::shuffle(order.begin(), order.end(), std::mt19937(static_cast<unsigned>(drawn)));
    for (const std::size_t i : order) {
      if (i == but) continue;
      if (script_.uses(rank_, n, batch, i)) {
        trainer_->mark_ready(i);
      } else if (i % 2 == 0) {  // Others wait() finds.
        trainer_->mark_unused(i);
      }
    }
  }

  /// The step fails by one rank first, or is left out, and leaves everything as it is.
  bool fail(std::size_t n) {
    const Failure failure = script_.failure(phase_, turn_);
    if (failure == Failure::none) return false;
    constexpr int kClumsy = 0;  // It has data.
    std::optional<std::size_t> wrong;
    for (std::size_t i = 0; i < count(); ++i) {
      if (script_.uses(kClumsy, n, script_.batches(n) - 1, i) && elements(i) > 0) wrong = i;
    }
    if (!wrong) return false;
    if (failure == Failure::left_out) {
      leave_out(n);
      return true;
    }
    const bool mine = rank_ == kClumsy;
    void* const gradient = trainer_->gradient(*wrong);
    const double right = mine ? load(type(*wrong), gradient, 0) : 0;
    if (mine && failure == Failure::not_finite)
      store(type(*wrong), gradient, 0, std::numeric_limits<float>::infinity());
    if (script_.samples(rank_, n) > 0) keep();
    mark_last(n, mine && failure == Failure::not_marked ? wrong : std::nullopt);
    if (mine && failure == Failure::marked_twice) testing::thrown_by([&] { trainer_->mark_ready(*wrong); });
    const Error error = testing::thrown_by([&] { trainer_->wait(); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument) << error.what();
    EXPECT_EQ(error.culprit(), kClumsy) << error.what();
    expect_as_before("failure " + std::to_string(static_cast<int>(failure)));
    EXPECT_EQ(testing::thrown_by([&] { trainer_->step(); }).code(), ErrorCode::invalid_argument);
    if (mine) store(type(*wrong), gradient, 0, right);
    return true;
  }
  /// A good step whose result nobody wants: backward runs again, in one micro-batch.
  void leave_out(std::size_t n) {
    mark_last(n, {});
    trainer_->wait();
    keep();
    if (script_.samples(rank_, n) == 0) return;
    for (std::size_t b = 0; b < script_.batches(n); ++b) compute(n, b);
    const auto pause = trainer_->no_sync();
    for (std::size_t b = 0; b + 1 < script_.batches(n); ++b) mark(n, b, {});
  }

  // ---- its end

  void finish(std::size_t n) {
    double factor = 1;
    if (script_.clips()) {
      const double norm = trainer_->clip_gradients(ShardedScript::kMaxNorm);
      const double expected = norm_of(n);
      EXPECT_NEAR(norm, expected, 0.02 * (1 + expected));
      factor = std::min(1.0, ShardedScript::kMaxNorm / std::max(expected, 1e-9));
    }
    rule_->throws = odd_rule_->throws = ends(End::optimizer_threw);
    trainer_->step();
    if (ends(End::aborted_in_forward)) abort();
    trainer_->wait_parameters();
    follow(n, factor);
    check(n, "stepped");
    if (script_.saves(n)) save();
  }
  double norm_of(std::size_t n) const {
    double squares = 0;
    for (std::size_t i = 0; i < count(); ++i) {
      for (std::size_t e = 0; e < elements(i); ++e) squares += std::pow(script_.reduced(n, ranks_, i, e), 2);
    }
    return std::sqrt(squares);
  }
  void follow(std::size_t n, double factor) {
    for (std::size_t i = 0; i < count(); ++i) {
      const int number = ++expected_.steps[i];
      for (std::size_t e = 0; e < elements(i); ++e) {
        expected_.step(expected_.tensors[i][e], factor * script_.reduced(n, ranks_, i, e), number,
                       script_.adam(), script_.is_odd(list_[i]));
      }
    }
  }

  double tolerance(std::size_t i) const {
    if (type(i) == DataType::bf16) return 0.2;
    return type(i) == DataType::f16 || script_.clips() ? 0.03 : 1e-3;  // The norm is that of halves, too.
  }
  void check(std::size_t n, const char* what) {
    std::uint64_t hash = 0;
    for (std::size_t i = 0; i < count(); ++i)
      hash = hash * 31 + internal::hash_bytes(trainer_->value(i), bytes(i));
    testing::expect_replicas_alike(communicator_, hash, std::string(what) + " " + std::to_string(n));
    for (std::size_t i = 0; i < count(); ++i) {
      for (std::size_t e = 0; e < elements(i); ++e) {
        const double expected = expected_.tensors[i][e].value;
        ASSERT_NEAR(load(type(i), trainer_->value(i), e), expected, tolerance(i) * (1 + std::abs(expected)))
            << what << " " << n << ": parameter " << i << " (" << name_of(type(i)) << "), element " << e
            << ", on rank " << rank_;
      }
    }
  }

  Communicator& communicator_;
  const ShardedScript script_;
  const std::size_t phase_;
  const std::string directory_;
  const int rank_, ranks_;
  std::map<std::string, Reference> saved_;
  const std::shared_ptr<Touchy> rule_, odd_rule_;
  std::vector<std::vector<std::byte>> values_, gradients_, before_;
  std::vector<Parameter> list_;
  Reference expected_;
  std::size_t turn_ = 0, saves_ = 0;
  bool in_backward_ = false, aborted_ = false;
  std::optional<ShardedOptimizer> trainer_;
};

}  // namespace lockstep
