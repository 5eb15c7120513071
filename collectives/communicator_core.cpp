#include "collectives/communicator_core.hpp"

#include <algorithm>
#include <atomic>

#include "collectives/call_builder.hpp"
#include "collectives/forked_child.hpp"
#include "collectives/make_transport.hpp"
#include "lib/base/hash.hpp"
#include "lib/bootstrap/loss.hpp"
#include "lib/net/fd.hpp"
#include "transports/tcp/switchboard.hpp"

namespace lockstep::internal {

/// A communicator that was closed in good order has a reason that is nobody's doing.
void WorldEnd::ended(const Status& why) {
  const bool in_order = why.code() == ErrorCode::aborted && why.culprit() < 0;
  const std::lock_guard lock(mutex_);
  if (failure_.ok() && !in_order) failure_ = why;
}

void WorldEnd::came_together() {
  const std::lock_guard lock(mutex_);
  together_ = true;
}

Status WorldEnd::failure() {
  const std::lock_guard lock(mutex_);
  return together_ ? Status() : failure_;
}

/// A failure is told in shared memory or over links, which some ranks may not have to this one. To them it is
/// lost now, and not before: while a communicator of this world is in use its rank goes on, and a world that
/// follows is another group, which hears nothing of this. Where all were told it leaves in good order: what
/// it has sent before is still theirs to receive, as nothing of a lost rank is.
World::~World() {
  switchboard.reset();
  if (!session) return;
  if (const Status failure = end.failure(); failure.ok()) {
    session->leave();
  } else {
    session->report_loss(
        {session->rank(), words_of([&] { return "it ended after a failure: " + failure.message(); })});
  }
}

CommunicatorCore::CommunicatorCore(std::shared_ptr<World> world, std::shared_ptr<Engine> engine,
                                   std::vector<int> world_ranks)
    : world_(std::move(world)), engine_(std::move(engine)), world_ranks_(std::move(world_ranks)) {}

CommunicatorCore::~CommunicatorCore() {
  if (in_forked_child()) {
    leave_to_parent(std::move(engine_));
    leave_to_parent(std::move(world_));
    return;
  }
  if (loss_callback_ != 0) world_->session->remove_loss_callback(loss_callback_);
  engine_->close();
  if (engine_->left_untold()) world_->end.ended(engine_->reason());
}

Result<std::shared_ptr<CommunicatorCore>> CommunicatorCore::make(
    std::shared_ptr<World> world, std::uint64_t id, std::string name, const std::vector<int>& world_ranks,
    std::chrono::milliseconds timeout, const StillWanted& still_wanted, const std::vector<int>& called,
    Numbers numbers) {
  EngineGroup group;
  group.id = id;
  group.name = std::move(name);
  if (numbers == Numbers::of_whole) group.called = called;
  for (const int rank : world_ranks) {
    if (rank == world->session->rank()) group.rank = group.size();
    group.members.push_back(world->session->members()[static_cast<std::size_t>(rank)]);
  }
  std::unique_ptr<Transport> transport;
  if (group.size() > 1) {
    auto made = make_transport(*world, group, world_ranks, timeout, still_wanted, called);
    if (!made.ok()) return made.status();
    transport = std::move(*made);
  }
  auto engine = std::make_shared<Engine>(std::move(group), std::move(transport), real_env(),
                                         &Reactor::instance(), world->model);
  std::shared_ptr<CommunicatorCore> core(
      new CommunicatorCore(std::move(world), std::move(engine), world_ranks));
  core->watch_losses();
  return core;
}

std::shared_ptr<CommunicatorCore> CommunicatorCore::on_memory(std::string name,
                                                              std::unique_ptr<Transport> transport,
                                                              DomainMemory& memory) {
  EngineGroup group = engine_->group();
  group.name = std::move(name);
  auto engine = std::make_shared<Engine>(std::move(group), std::move(transport), real_env(),
                                         &Reactor::instance(), world_->model, &memory);
  std::shared_ptr<CommunicatorCore> core(new CommunicatorCore(world_, std::move(engine), world_ranks_));
  core->watch_losses();
  return core;
}

void CommunicatorCore::watch_losses() {
  if (size() == 1) return;
  static std::atomic<std::uint64_t> next{1};
  loss_callback_ = next.fetch_add(1);
  std::weak_ptr<Engine> engine = engine_;
  world_->session->on_loss(loss_callback_, [engine, ranks = world_ranks_](const Loss& loss) {
    const auto found = std::find(ranks.begin(), ranks.end(), loss.rank);
    const auto alive = engine.lock();
    if (found != ranks.end() && alive) alive->on_loss(static_cast<int>(found - ranks.begin()), loss.evidence);
  });
}

std::string CommunicatorCore::describe() const {
  const EngineGroup& group = engine_->group();
  const Transport* transport = engine_->transport();
  return "rank " + std::to_string(group.rank) + " of " + std::to_string(group.size()) + " on " +
         group.members[static_cast<std::size_t>(group.rank)].host_name + ", transport " +
         std::string(transport ? transport->name() : "none") + ", ranks from " + world_->session->source();
}

int CommunicatorCore::number_in(const CommunicatorCore& other, int rank) const {
  if (rank < 0 || rank >= size()) return -1;
  const std::vector<int>& others = other.world_ranks_;
  const auto found = std::find(others.begin(), others.end(), world_ranks_[static_cast<std::size_t>(rank)]);
  return found == others.end() ? -1 : static_cast<int>(found - others.begin());
}

namespace {

struct SplitEntry {
  std::int64_t color, key;
};

}  // namespace

/// Nobody has a part before all have theirs: a rank that gets none could not tell the others by it.
Result<std::shared_ptr<CommunicatorCore>> CommunicatorCore::split(int color, int key, Numbers numbers) {
  std::vector<SplitEntry> entries(static_cast<std::size_t>(size()));
  const SplitEntry own{color, key};
  // Of two threads, the first to gather is the first to count, as on the other ranks.
  std::lock_guard lock(split_mutex_);
  CallBuilder gather(Collective::all_gather, *engine_, {});
  LOCKSTEP_RETURN_IF_ERROR(
      engine_->run(gather.elements(DataType::i64, 2).buffers(&own, entries.data()).build()));
  ++splits_;
  std::vector<int> ranks;
  for (int r = 0; r < size() && color >= 0; ++r) {
    if (entries[static_cast<std::size_t>(r)].color == color) ranks.push_back(r);
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return entries[static_cast<std::size_t>(a)].key < entries[static_cast<std::size_t>(b)].key;
  });
  auto part = color < 0 ? std::shared_ptr<CommunicatorCore>() : make_part(color, ranks, numbers);
  if (!part.ok()) {
    end_as_unable("split", part.status());
    return part;
  }
  CallBuilder barrier(Collective::barrier, *engine_, {});
  const Status all = engine_->run(barrier.build());
  if (all.ok()) return part;
  if (*part) give_up(**part);
  return all;
}

/// Of `ranks` of this one, which errors of its set-up call them in any case.
Result<std::shared_ptr<CommunicatorCore>> CommunicatorCore::make_part(int color,
                                                                      const std::vector<int>& ranks,
                                                                      Numbers numbers) {
  std::vector<int> world_ranks;
  for (const int r : ranks) world_ranks.push_back(world_ranks_[static_cast<std::size_t>(r)]);
  const EngineGroup& group = engine_->group();
  const std::uint64_t id = hash_combine(hash_combine(hash_combine(kFnvOffset, group.id), splits_),
                                        static_cast<std::uint64_t>(color));
  const std::string name = group.name + "/" + std::to_string(splits_) + "." + std::to_string(color);
  const std::chrono::milliseconds timeout(default_timeout() / 1'000'000);
  return make(world_, id, name, world_ranks, timeout, still_wanted(), ranks, numbers);
}

/// Of a loss the engine has heard by itself, unless by a message.
void CommunicatorCore::end_as_unable(const char* act, const Status& why) {
  const int culprit = why.culprit() < 0 ? rank() : why.culprit();
  engine_->request_revoke(
      Status(why.code(), engine_->who(rank()) + " cannot " + act + ": " + why.message(), culprit));
}

/// Of those whom the end of this one found behind its barrier some may use the part: they hear why this rank
/// does not. Of a loss its engine hears by itself, and has the number for it.
void CommunicatorCore::give_up(CommunicatorCore& part) {
  const Status why = engine_->reason();
  if (why.code() == ErrorCode::peer_lost && number_in(part, why.culprit()) >= 0)
    await_word(real_env(), [&] { return part.engine_->poll_state() != ErrorCode::ok; });
  part.engine_->request_revoke(
      Status(why.code(), part.engine_->who(part.rank()) + " left: " + words_of_end(), part.rank()));
}

/// For groups that have other numbers for its ranks.
std::string CommunicatorCore::words_of_end() {
  return "group \"" + engine_->group().name + "\" has ended: " + engine_->reason().message();
}

StillWanted CommunicatorCore::still_wanted() const {
  return [engine = engine_] { return engine->poll_state() == ErrorCode::ok ? Status() : engine->reason(); };
}

void CommunicatorCore::abort(std::string_view reason) {
  const Status why(ErrorCode::aborted, engine_->who(rank()) + " aborted: " + std::string(reason), rank());
  engine_->request_revoke(why);
  const std::lock_guard lock(parts_mutex_);
  for (CommunicatorCore* const part : parts_) part->abort(reason);
}

/// Where the whole has ended before, the part ends at once.
CommunicatorCore::SetUp::SetUp(CommunicatorCore& whole, CommunicatorCore& part) : whole_(whole), part_(part) {
  {
    const std::lock_guard lock(whole_.parts_mutex_);
    whole_.parts_.push_back(&part);
  }
  if (whole_.engine().poll_state() == ErrorCode::ok) return;
  const Status why = whole_.engine().reason();
  part_.engine().request_revoke(
      Status(why.code(), whole_.words_of_end(), whole_.number_in(part_, why.culprit())));
}

CommunicatorCore::SetUp::~SetUp() {
  const std::lock_guard lock(whole_.parts_mutex_);
  std::erase(whole_.parts_, &part_);
}

Status CommunicatorCore::finalize() {
  engine_->finish_calls();
  CallBuilder barrier(Collective::barrier, *engine_, {});
  Status status = engine_->run(barrier.build());
  if (status.ok() && size() == world_->session->size()) world_->end.came_together();
  engine_->close();
  return status;
}

}  // namespace lockstep::internal
