#include "tests/engine/sim_world.hpp"

#include <algorithm>

#include "lib/base/hash.hpp"
#include "lockstep/memory.hpp"

namespace lockstep::internal {

namespace {

EngineGroup group_of(int rank, int world) {
  EngineGroup group;
  group.id = 1;
  group.rank = rank;
  for (int r = 0; r < world; ++r) {
    Member member;
    member.rank = r;
    member.host_id = member.host_name = "simulated";
    member.pid = 1000 + r;
    member.process = process_token();
    group.members.push_back(std::move(member));
  }
  return group;
}

struct FreeRegistered {
  void operator()(std::byte* memory) const { lockstep::free(memory); }
};

}  // namespace

/// One rank: its engine, what is left of its script, and what is in flight.
class SimWorld::Rank {
 public:
  Rank(SimWorld& world, int rank)
      : schedule_(world.schedule_),
        concurrency_(static_cast<std::size_t>(world.options_.concurrency)),
        rank_(rank),
        engine_(std::make_shared<Engine>(group_of(rank, world.options_.world), world.network_.attach(rank),
                                         world.schedule_.env(rank), nullptr)) {}

  ~Rank() {
    for (Running& running : running_) engine_->release(running.operation);
  }

  Engine& engine() { return *engine_; }
  void add(const SimCall& call) { script_.push_back(call); }
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
    std::vector<std::byte> heap;
    std::unique_ptr<std::byte, FreeRegistered> registered;
    std::unique_ptr<CollectiveCase> what;  // A user's operator points to it.
    std::unique_ptr<CallBuffers> buffers;
    std::vector<std::size_t> counts, receive_counts;
  };

  bool collect() {
    const auto ended = [this](Running& running) {
      if (!running.operation->done.load()) return false;
      SimOutcome& outcome = outcomes_[running.outcome];
      outcome.status = running.operation->status;
      outcome.wrong =
          outcome.status.ok() ? running.buffers->check_result() : running.buffers->check_unharmed();
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
    const SimCall call = script_.front();
    script_.pop_front();
    Running& running = running_.emplace_back();
    running.outcome = outcomes_.size();
    outcomes_.emplace_back();
    running.what = std::make_unique<CollectiveCase>(call.what);
    running.buffers = std::make_unique<CallBuffers>(call.what, rank_, call.in_place, memory(running, call));
    running.operation = engine_->start(make_call(running, call));
    return true;
  }

  static std::span<std::byte> memory(Running& running, const SimCall& call) {
    const std::size_t bytes = CallBuffers::bytes_needed(call.what);
    if (call.registered) {
      running.registered.reset(static_cast<std::byte*>(lockstep::allocate(bytes)));
      return {running.registered.get(), bytes};
    }
    running.heap.resize(bytes);
    return running.heap;
  }

  Call make_call(Running& running, const SimCall& scripted) const;

  SimSchedule& schedule_;
  std::size_t concurrency_;
  int rank_;
  std::shared_ptr<Engine> engine_;
  std::deque<SimCall> script_;
  std::deque<Running> running_;
  std::vector<SimOutcome> outcomes_;
};

Call SimWorld::Rank::make_call(Running& running, const SimCall& scripted) const {
  const CollectiveCase& what = *running.what;
  Call call;
  call.facts.collective = what.collective;
  call.timeout = scripted.timeout;
  if (what.collective == Collective::barrier) return call;
  call.facts.type = what.type;
  call.facts.op = what.op;
  call.facts.algorithm = static_cast<std::uint8_t>(scripted.algorithm);
  call.facts.root = what.root;
  call.facts.count = what.count;
  call.input = running.buffers->input();
  call.output = running.buffers->output();
  call.input_elements = what.input_elements(rank_);
  call.output_elements = what.output_elements(rank_);
  call.scale = what.scale(rank_);
  call.user_op = what.user_op();
  if (!what.irregular()) return call;
  running.counts = what.counts(rank_);
  call.counts = running.counts;
  call.facts.count = 0;
  if (what.collective == Collective::all_to_all_v) {
    running.receive_counts = what.receive_counts(rank_);
    call.recv_counts = running.receive_counts;
  }
  const bool agreed =
      what.collective == Collective::all_gather_v || what.collective == Collective::reduce_scatter_v;
  for (const std::size_t count : agreed ? running.counts : std::vector<std::size_t>()) {
    call.facts.extra = hash_combine(call.facts.extra, count);
  }
  return call;
}

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

void SimWorld::add(int rank, const SimCall& call) {
  ranks_[static_cast<std::size_t>(rank)]->add(call);
  unfinished_ = 0;
}

void SimWorld::add(const SimCall& call) {
  for (int rank = 0; rank < options_.world; ++rank) add(rank, call);
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
