#include "collectives/device/hosts/across_hosts.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "collectives/device/patience.hpp"
#include "collectives/device/stream_words.hpp"
#include "collectives/engine/group_hosts.hpp"
#include "collectives/programs/hosts/host_layout.hpp"

namespace lockstep::internal {

Status NoMemory::run(const Program&, const Step&, const Buffers&, const Combine&) {
  return Status(ErrorCode::internal, "a barrier among hosts has no steps on memory");
}

Result<Selection> NoMemory::choose(const CallFacts&, const Shape&) {
  auto row = find_algorithm(Collective::barrier, Medium::links, "dissemination");
  if (!row.ok()) return row.status();
  Selection selection;
  selection.links = *row;
  return selection;
}

namespace {

/// A group that ended because of a rank that is not in it has no number for that one. Who ended it tells all
/// others in the same moment.
Status as_all_were_told(CommunicatorCore& all, CommunicatorCore& group, Status status) {
  const Status heard = group.engine().reason();
  if (heard.code() != status.code() || heard.culprit() >= 0) return status;
  for (const Nanos end = end_after(kVerdict); all.engine().poll_state() == ErrorCode::ok;) {
    if (real_env().now() >= end) return status;
    sleep_for(kPause);
  }
  Status told = all.engine().reason();
  return told.culprit() >= 0 ? told : status;
}

}  // namespace

Status in_ranks_of(CommunicatorCore& all, CommunicatorCore& group, Status status) {
  if (status.ok() || all.size() == group.size()) return status;
  const int rank = group.number_in(all, status.culprit());
  if (rank < 0) return as_all_were_told(all, group, std::move(status));
  return Status(status.code(), "rank " + std::to_string(rank) + " of all: " + status.message(), rank);
}

Status for_ranks_of(const CommunicatorCore& group, const CommunicatorCore& all, const Status& status) {
  return Status(status.code(), status.message(), all.number_in(group, status.culprit()));
}

Result<std::unique_ptr<AcrossHosts>> AcrossHosts::make(Backend& backend, DeviceStream stream,
                                                       CommunicatorCore& all,
                                                       std::shared_ptr<CommunicatorCore> near,
                                                       std::size_t bytes) {
  std::unique_ptr<AcrossHosts> across(new AcrossHosts(backend, stream, std::move(near)));
  LOCKSTEP_RETURN_IF_ERROR(across->meet(all, bytes));
  return across;
}

Status AcrossHosts::meet(CommunicatorCore& all, std::size_t bytes) {
  Shape shape;
  shape.rank = ground_.rank = all.rank();
  shape.world = all.size();
  shape.hosts = ground_.hosts = hosts_of(all.engine().group());
  const HostLayout layout(shape);
  ground_.adjacent = layout.adjacent();
  ground_.near = &near_devices_->engine();
  auto wire = all.split(0, all.rank());
  if (!wire.ok()) return wire.status();
  wire_ = std::move(*wire);
  if (layout.even() && near_devices_->size() > 1) {
    ground_.row = layout.across(near_devices_->rank());
    std::sort(ground_.row.begin(), ground_.row.end());  // As the split orders them.
    auto row = all.split(near_devices_->rank(), all.rank(), CommunicatorCore::Numbers::of_whole);
    if (!row.ok()) return row.status();
    row_ = std::move(*row);
  }
  auto relay = ColumnRelay::make(backend_, bytes);
  if (!relay.ok()) return relay.status();
  relay_ = std::move(*relay);
  auto carried = TransitMemory::pinned(backend_, sizeof(std::uint32_t));
  if (!carried.ok()) return carried.status();
  carried_ = std::move(*carried);
  return {};
}

std::vector<CommunicatorCore*> AcrossHosts::groups() const {
  std::vector<CommunicatorCore*> groups{near_devices_.get(), wire_.get()};
  if (row_ != nullptr) groups.push_back(row_.get());
  return groups;
}

std::string AcrossHosts::describe() const {
  const int hosts = *std::max_element(ground_.hosts.begin(), ground_.hosts.end()) + 1;
  const std::string ranks = row_ != nullptr || hosts == ground_.world()
                                ? std::to_string(near_devices_->size()) +
                                      (near_devices_->size() == 1 ? " rank on each" : " ranks on each")
                                : "uneven";
  return std::to_string(hosts) + " hosts, " + ranks;
}

// ---- in host_sync ----

Status AcrossHosts::run(const Call& call, const RelayWatch& watch) {
  for (HostsStep& step : plan_for_hosts(call, ground_))
    LOCKSTEP_RETURN_IF_ERROR(std::visit([&](auto& one) { return run(one, watch); }, step));
  return {};
}

/// The engine would know at the deadline who is waited for, and not whom that one waits for.
Status AcrossHosts::run(NearStep& step, const RelayWatch& watch) {
  Engine& engine = near_devices_->engine();
  const RelayWatch beside = for_group(*near_devices_, watch);
  Call call = step.call.call();
  call.timeout = 0;
  Status given_up;
  const Status status = engine.run(call, kLookEvery, [&](const Operation& operation) {
    if (!given_up.ok()) return;
    const std::vector<int> awaited = engine.awaited_by(operation);
    given_up = beside.look(awaited);
    const bool is_late = beside.end != 0 && engine.env().now() >= beside.end;
    if (given_up.ok() && is_late) given_up = beside.late(awaited);
    if (!given_up.ok()) engine.request_revoke(beside.in_group(given_up));
  });
  return given_up.ok() ? beside.in_all(status) : given_up;
}

Status AcrossHosts::run(const FarStep& step, const RelayWatch& watch) {
  if (runs_straight(step)) return run_straight(step, watch.end);
  auto passage = relay_->book(step.call);
  Status status = passage.status();
  if (status.ok()) status = relay_->enqueue(step.call, *passage, stream_);
  if (status.ok()) status = carry(step, *passage, watch);
  if (status.ok()) return await_stream(backend_, stream_, watch.end == 0 ? kForever : watch.end);
  group_of(step).engine().request_revoke(for_ranks_of(group_of(step), *wire_, status));
  relay_->let_pass();
  let_end(backend_, stream_);
  return status;
}

Status AcrossHosts::carry(const FarStep& step, const ColumnRelay::Passage& passage, const RelayWatch& watch) {
  CommunicatorCore& group = group_of(step);
  return relay_->carry(group.engine(), step.call, passage, for_group(group, watch));
}

/// `watch` knows ranks by their numbers among all, and `group` by those in it.
RelayWatch AcrossHosts::for_group(CommunicatorCore& group, RelayWatch watch) const {
  const auto of_all = [&](auto call) {
    return [this, &group, call = std::move(call)](std::vector<int> ranks) {
      for (int& rank : ranks) rank = group.number_in(*wire_, rank);
      return call(ranks);
    };
  };
  watch.look = of_all(std::move(watch.look));
  watch.late = of_all(std::move(watch.late));
  watch.in_all = [this, &group](Status status) { return in_ranks_of(*wire_, group, std::move(status)); };
  watch.in_group = [this, &group](const Status& status) { return for_ranks_of(group, *wire_, status); };
  return watch;
}

Status AcrossHosts::run(const DivideStep& step, const RelayWatch& watch) {
  LOCKSTEP_RETURN_IF_ERROR(divide(step, stream_));
  return await_stream(backend_, stream_, watch.end == 0 ? kForever : watch.end);
}

/// Straight messages go from rank to rank: with several ranks on a host most collectives of all would send
/// the same, or what could be reduced before, for each of them.
bool AcrossHosts::runs_straight(const FarStep& step) const {
  if (straight_ == nullptr) return false;
  if (step.in_row) return true;
  const Collective collective = step.call.collective;
  const bool one_on_each =
      *std::max_element(ground_.hosts.begin(), ground_.hosts.end()) + 1 == ground_.world();
  return StraightCalls::carries(step.call) &&
         (one_on_each || collective == Collective::scatter || collective == Collective::gather ||
          collective == Collective::all_to_all);
}

Status AcrossHosts::run_straight(const FarStep& step, Nanos end) {
  if (step.in_row) return straight_->run({ground_.row, row_->rank()}, step.call, end);
  StraightCalls::Group all{std::vector<int>(ground_.hosts.size()), wire_->rank()};
  std::iota(all.ranks.begin(), all.ranks.end(), 0);
  return straight_->run(all, step.call, end);
}

Status AcrossHosts::divide(const DivideStep& step, DeviceStream stream) {
  if (step.count == 0) return {};
  const void* const source = step.data;
  void* const destination = step.data;
  ReduceJob job;
  job.type = step.type;
  job.op = ReduceOp::avg;
  job.count = step.count;
  job.sources = {&source, 1};
  job.destinations = {&destination, 1};
  job.divisor = step.divisor;
  return backend_.reduce(job, stream);
}

// ---- in the other modes ----

Result<HostsBooking> AcrossHosts::book(const Call& call) {
  HostsBooking booking;
  booking.number = ++booked_;
  booking.plan = plan_for_hosts(call, ground_);
  for (HostsStep& step : booking.plan) {
    auto* const far = std::get_if<FarStep>(&step);
    if (far == nullptr) continue;
    auto passage = relay_->book(far->call);
    if (!passage.ok()) return passage.status();
    far->passage = *passage;
    booking.has_columns |= passage->columns > 0;
  }
  return booking;
}

Status AcrossHosts::enqueue(const HostsBooking& booking, const Call& call, CallRunner& runner,
                            DeviceStream stream) {
  const auto enqueue_step = [&](const auto& step) {
    using One = std::remove_cvref_t<decltype(step)>;
    if constexpr (std::is_same_v<One, FarStep>) {
      return relay_->enqueue(step.call, step.passage, stream);
    } else if constexpr (std::is_same_v<One, NearStep>) {
      Call near = step.call.call();
      near.timeout = call.timeout;
      return runner.enqueue(near, stream);
    } else {
      return divide(step, stream);
    }
  };
  for (const HostsStep& step : booking.plan) LOCKSTEP_RETURN_IF_ERROR(std::visit(enqueue_step, step));
  return booking.has_columns ? Status() : backend_.wait_value(carried(), booking.number, stream);
}

Status AcrossHosts::carry(const HostsBooking& booking, const RelayWatch& watch) {
  for (const HostsStep& step : booking.plan) {
    const auto* const far = std::get_if<FarStep>(&step);
    if (far == nullptr) continue;
    LOCKSTEP_RETURN_IF_ERROR(carry(*far, far->passage, watch));
  }
  std::atomic_ref(*carried()).store(booking.number, std::memory_order_release);
  return {};
}

void AcrossHosts::let_pass() {
  std::atomic_ref(*carried()).store(booked_ + kFarAhead, std::memory_order_release);
  relay_->let_pass();
}

}  // namespace lockstep::internal
