#include "tests/engine/sim_world.hpp"

#include <deque>

#include "tests/engine/made_up_group.hpp"

namespace lockstep::internal {

/// One rank: its engine, what is left of its script, and what is in flight.
class SimWorld::Rank {
 public:
  Rank(SimWorld& world, int rank)
      : schedule_(world.schedule_),
        concurrency_(static_cast<std::size_t>(world.options_.concurrency)),
        engine_(std::make_shared<Engine>(testing::made_up_group(rank, world.options_.world, "simulated"),
                                         world.network_.attach(rank), world.schedule_.env(rank), nullptr)) {}

  ~Rank() {
    for (Running& running : running_) engine_->release(running.operation);
  }

  Engine& engine() { return *engine_; }
  void append(Maker maker) { script_.push_back(std::move(maker)); }
  bool finished() const { return script_.empty() && running_.empty(); }
  const std::vector<SimOutcome>& outcomes() const { return outcomes_; }

  void step() {
    bool moved = true;
    while (moved) {
      moved = engine_->step();
      moved = collect() || moved;
      moved = start_next() || moved;
    }
  }

  void tell_loss(int lost) { engine_->on_loss(lost, "killed by the simulation"); }

 private:
  struct Running {
    Operation* operation;
    std::size_t outcome;
    std::unique_ptr<SimAction> action;
  };

  bool collect() {
    const auto ended = [this](Running& running) {
      if (!running.operation->done.load()) return false;
      SimOutcome& outcome = outcomes_[running.outcome];
      outcome.status = running.operation->status;
      outcome.wrong = running.action->check(*running.operation);
      outcome.ended = schedule_.now();
      engine_->release(running.operation);
      // One more call after a failure, which must fail too, and no more: a program would end here.
      if (!outcome.status.ok() && script_.size() > 1) script_.resize(1);
      return true;
    };
    return std::erase_if(running_, ended) > 0;
  }

  bool start_next() {
    if (script_.empty() || running_.size() >= concurrency_) return false;
    auto action = script_.front()();
    script_.pop_front();
    Operation* operation = action->start(*engine_);
    running_.push_back({operation, outcomes_.size(), std::move(action)});
    outcomes_.emplace_back();
    return true;
  }

  SimSchedule& schedule_;
  std::size_t concurrency_;
  std::shared_ptr<Engine> engine_;
  std::deque<Maker> script_;
  std::vector<Running> running_;
  std::vector<SimOutcome> outcomes_;
};

SimWorld::SimWorld(const SimWorldOptions& options)
    : options_(options), schedule_(options.world, options.seed), network_(schedule_, options.network) {
  for (int rank = 0; rank < options.world; ++rank) {
    ranks_.push_back(std::make_unique<Rank>(*this, rank));
    schedule_.wake(
        rank, static_cast<Nanos>(schedule_.random().below(static_cast<std::uint64_t>(options.skew) + 1)));
  }
  if (options.loss_notice == 0) return;
  schedule_.on_crash([this](int lost) {
    for (int rank = 0; rank < options_.world; ++rank) {
      const auto delay = schedule_.random().below(static_cast<std::uint64_t>(options_.loss_notice));
      if (rank == lost) continue;
      schedule_.at(schedule_.now() + static_cast<Nanos>(delay), [this, rank, lost] {
        if (schedule_.crashed(rank)) return;
        ranks_[static_cast<std::size_t>(rank)]->tell_loss(lost);
        schedule_.wake(rank, schedule_.now());
      });
    }
  });
}

SimWorld::~SimWorld() = default;

void SimWorld::append(int rank, Maker maker) {
  ranks_[static_cast<std::size_t>(rank)]->append(std::move(maker));
  unfinished_ = 0;
}

const std::vector<SimOutcome>& SimWorld::outcomes(int rank) const {
  return ranks_[static_cast<std::size_t>(rank)]->outcomes();
}

Engine& SimWorld::engine(int rank) { return ranks_[static_cast<std::size_t>(rank)]->engine(); }

bool SimWorld::finished() {
  const auto past = [this](int rank) {
    return schedule_.crashed(rank) || ranks_[static_cast<std::size_t>(rank)]->finished();
  };
  while (unfinished_ < options_.world && past(unfinished_)) ++unfinished_;
  return unfinished_ == options_.world;
}

bool SimWorld::run(Nanos deadline) {
  const auto step = [this](int rank) { ranks_[static_cast<std::size_t>(rank)]->step(); };
  while (!finished()) {
    if (schedule_.now() > deadline || !schedule_.advance(step)) return false;
  }
  return true;
}

std::string SimWorld::run_and_check(Nanos deadline) {
  const bool ended = run(deadline);
  for (int rank = 0; rank < options_.world; ++rank) {
    const auto& all = outcomes(rank);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::string where = "rank " + std::to_string(rank) + ", call " + std::to_string(i) + ": ";
      if (!all[i].status.ok()) return where + all[i].status.message();
      if (!all[i].wrong.empty()) return where + all[i].wrong;
    }
  }
  return ended ? "" : "not all ranks came to the end of their scripts";
}

}  // namespace lockstep::internal
