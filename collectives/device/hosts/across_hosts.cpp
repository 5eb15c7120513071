#include "collectives/device/hosts/across_hosts.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <utility>

#include "collectives/device/patience.hpp"
#include "collectives/engine/group_hosts.hpp"
#include "collectives/programs/hosts/host_layout.hpp"
#include "lib/base/element_types.hpp"
#include "lib/reduce/average.hpp"
#include "lib/reduce/element.hpp"
#include "lib/reduce/reduce.hpp"

namespace lockstep::internal {
namespace {

std::byte* at(void* buffer, std::uint64_t element, std::size_t size) {
  return static_cast<std::byte*>(buffer) + element * size;
}

/// `count` elements in as many parts as a host has ranks.
std::vector<std::size_t> shares_of(std::uint64_t count, std::size_t parts) {
  std::vector<std::size_t> shares(parts, count / parts);
  for (std::size_t i = 0; i < count % parts; ++i) ++shares[i];
  return shares;
}

template <typename T>
double number(const void* element) {
  T value;
  std::memcpy(&value, element, sizeof value);
  return static_cast<double>(value);
}

/// Of a real type: others have no factors.
double as_double(DataType type, const void* data) {
  switch (type) {
    case DataType::i8:
      return number<std::int8_t>(data);
    case DataType::u8:
      return number<std::uint8_t>(data);
    case DataType::i32:
      return number<std::int32_t>(data);
    case DataType::u32:
      return number<std::uint32_t>(data);
    case DataType::i64:
      return number<std::int64_t>(data);
    case DataType::u64:
      return number<std::uint64_t>(data);
    default:
      break;
  }
  double value = 0;
  const auto read_as = [&]<class Element>(std::uint64_t) {
    value = Element::load(*static_cast<const typename Element::Stored*>(data));
  };
  if (!element::with_floats(type, 1, read_as)) std::abort();
  return value;
}

}  // namespace

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

Status in_ranks_of(const CommunicatorCore& all, const CommunicatorCore& group, Status status) {
  const bool names_a_member = status.culprit() >= 0 && status.culprit() < group.size();
  if (!names_a_member || all.size() == group.size()) return status;
  const int lost = group.world_ranks()[static_cast<std::size_t>(status.culprit())];
  const auto found = std::find(all.world_ranks().begin(), all.world_ranks().end(), lost);
  const auto rank = static_cast<int>(found - all.world_ranks().begin());
  return Status(status.code(), "rank " + std::to_string(rank) + " of all: " + status.message(), rank);
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
  hosts_ = hosts_of(all.engine().group());
  Shape shape;
  shape.rank = all.rank();
  shape.world = all.size();
  shape.hosts = hosts_;
  const HostLayout layout(shape);
  adjacent_ = layout.adjacent();
  auto wire = all.split(0, all.rank());
  if (!wire.ok()) return wire.status();
  wire_ = std::move(*wire);
  if (layout.even() && near_->size() > 1) {
    row_ranks_ = layout.across(local());
    std::sort(row_ranks_.begin(), row_ranks_.end());  // As the split orders them.
    auto row = all.split(local(), all.rank());
    if (!row.ok()) return row.status();
    row_ = std::move(*row);
  }
  auto pipeline = PinnedPipeline::make(backend_, stream_, bytes);
  if (!pipeline.ok()) return pipeline.status();
  pipeline_ = std::move(*pipeline);
  auto factor = TransitMemory::pinned(backend_, sizeof(double));
  if (!factor.ok()) return factor.status();
  factor_ = std::move(*factor);
  return {};
}

std::vector<CommunicatorCore*> AcrossHosts::groups() const {
  std::vector<CommunicatorCore*> groups{near_.get(), wire_.get()};
  if (row_ != nullptr) groups.push_back(row_.get());
  return groups;
}

std::string AcrossHosts::describe() const {
  const int hosts = *std::max_element(hosts_.begin(), hosts_.end()) + 1;
  const std::string ranks =
      row_ != nullptr || static_cast<std::size_t>(hosts) == hosts_.size()
          ? std::to_string(near_->size()) + (near_->size() == 1 ? " rank on each" : " ranks on each")
          : "uneven";
  return std::to_string(hosts) + " hosts, " + ranks;
}

Status AcrossHosts::run(const Call& call) {
  const Nanos end = call.timeout == 0 ? 0 : wire_->engine().env().now() + call.timeout;
  const Collective collective = call.facts.collective;
  if (collective == Collective::barrier) return {};
  if (row_ != nullptr) {
    if (collective == Collective::all_reduce) return all_reduce(call, end);
    if (collective == Collective::broadcast) return broadcast(call, end);
    if (collective == Collective::all_gather && adjacent_) return all_gather(call, end);
  }
  return run_whole(call, end);
}

Status AcrossHosts::run_whole(const Call& call, Nanos end) {
  StagedCall whole = stage_whole(call, wire_->rank(), wire_->size());
  if (straight_ != nullptr && whole_goes_straight(whole.collective) && StraightCalls::carries(whole)) {
    StraightCalls::Group all{std::vector<int>(hosts_.size()), wire_->rank()};
    std::iota(all.ranks.begin(), all.ranks.end(), 0);
    return straight_->run(all, whole, end);
  }
  auto scale = scale_of(call, end);
  if (!scale.ok()) return scale.status();
  whole.scale = *scale;
  return pipeline_->run(wire_->engine(), whole, end);
}

/// Straight messages go from rank to rank: with several ranks on a host most collectives would send the same,
/// or what could be reduced before, for each of them.
bool AcrossHosts::whole_goes_straight(Collective collective) const {
  const bool one_on_each =
      *std::max_element(hosts_.begin(), hosts_.end()) + 1 == static_cast<int>(hosts_.size());
  return one_on_each || collective == Collective::scatter || collective == Collective::gather ||
         collective == Collective::all_to_all;
}

Status AcrossHosts::all_reduce(const Call& call, Nanos end) {
  const CallFacts& facts = call.facts;
  if (facts.count == 0) return {};
  const std::size_t element = size_of(facts.type);
  const std::vector<std::size_t> shares = shares_of(facts.count, ranks_here());
  std::uint64_t before = 0;
  for (int i = 0; i < local(); ++i) before += shares[static_cast<std::size_t>(i)];
  std::byte* const own = at(call.output, before, element);
  const std::size_t count = shares[static_cast<std::size_t>(local())];
  const bool averages = facts.op == ReduceOp::avg;
  const AverageSteps average = averages ? average_steps(facts.type, wire_->size()) : AverageSteps();
  const ReduceOp op = !averages ? facts.op : average.factor == 1 ? ReduceOp::sum : ReduceOp::premul_sum;

  CallBuilder near = near_call(call, Collective::reduce_scatter_v, averages ? average.factor : call.scale);
  near.counts(shares).reduction(op).buffers(call.input, own).on_device(call.device_scale);
  LOCKSTEP_RETURN_IF_ERROR(run_near(std::move(near), end));

  StagedCall row{Collective::all_reduce, facts.type, op, -1, 1, call.priority, {}, {}, {}};
  if (op == ReduceOp::premul_sum) row.op = ReduceOp::sum;
  row.input = row.output = DeviceBlocks::even(own, count, count);
  row.longest = count;
  LOCKSTEP_RETURN_IF_ERROR(run_row(row, end));
  if (average.divisor != 1) LOCKSTEP_RETURN_IF_ERROR(divide(call, own, count, average.divisor, end));

  CallBuilder gather = near_call(call, Collective::all_gather_v);
  gather.counts(shares).buffers(own, call.output);
  return run_near(std::move(gather), end);
}

Status AcrossHosts::divide(const Call& call, std::byte* data, std::uint64_t count, double divisor,
                           Nanos end) {
  if (count == 0) return {};
  const void* const source = data;
  void* const destination = data;
  ReduceJob job;
  job.type = call.facts.type;
  job.op = ReduceOp::avg;
  job.count = count;
  job.sources = {&source, 1};
  job.destinations = {&destination, 1};
  job.divisor = divisor;
  LOCKSTEP_RETURN_IF_ERROR(backend_.reduce(job, stream_));
  return await_stream(backend_, stream_, end == 0 ? kForever : end);
}

Status AcrossHosts::broadcast(const Call& call, Nanos end) {
  const CallFacts& facts = call.facts;
  if (facts.count == 0) return {};
  // Root's number on its host.
  const auto before = hosts_.begin() + facts.root;
  const auto number = static_cast<int>(std::count(hosts_.begin(), before, *before));
  if (number == local()) {
    StagedCall row{Collective::broadcast, facts.type, facts.op, 0, 1, call.priority, {}, {}, {}};
    row.root =
        static_cast<int>(std::find(row_ranks_.begin(), row_ranks_.end(), facts.root) - row_ranks_.begin());
    const bool is_root = row.root == row_->rank();
    row.input = DeviceBlocks::even(call.input, facts.count, is_root ? facts.count : 0);
    row.output = DeviceBlocks::even(call.output, facts.count, is_root ? 0 : facts.count);
    row.longest = facts.count;
    LOCKSTEP_RETURN_IF_ERROR(run_row(row, end));
  }
  CallBuilder near = near_call(call, Collective::broadcast);
  near.root(number).elements(facts.type, facts.count).buffers(call.output, call.output);
  return run_near(std::move(near), end);
}

Status AcrossHosts::all_gather(const Call& call, Nanos end) {
  const CallFacts& facts = call.facts;
  if (facts.count == 0) return {};
  const std::size_t element = size_of(facts.type);
  StagedCall row{Collective::all_gather, facts.type, facts.op, -1, 1, call.priority, {}, {}, {}};
  row.input = DeviceBlocks::even(call.input, facts.count, facts.count);
  row.output.base = static_cast<std::byte*>(call.output);
  for (const int rank : row_ranks_)
    row.output.blocks.push_back({static_cast<std::uint64_t>(rank) * facts.count, facts.count});
  row.longest = facts.count;
  row.width = row_ranks_.size();
  LOCKSTEP_RETURN_IF_ERROR(run_row(row, end));
  for (const int rank : row_ranks_) {
    const auto first = static_cast<std::uint64_t>(rank - local());  // Of that host.
    CallBuilder near = near_call(call, Collective::all_gather);
    near.elements(facts.type, facts.count)
        .buffers(at(call.output, static_cast<std::uint64_t>(rank) * facts.count, element),
                 at(call.output, first * facts.count, element));
    LOCKSTEP_RETURN_IF_ERROR(run_near(std::move(near), end));
  }
  return {};
}

CallBuilder AcrossHosts::near_call(const Call& call, Collective collective, double scale) const {
  CallOptions options;
  options.scale = scale;
  CallBuilder near(collective, near_->engine(), options);
  near.elements(call.facts.type, 0);
  return near;
}

Status AcrossHosts::run_near(CallBuilder call, Nanos end) {
  const Nanos left = end == 0 ? 0 : std::max<Nanos>(1, end - wire_->engine().env().now());
  Call built = call.build();
  built.timeout = left;
  return in_ranks_of(*wire_, *near_, near_->engine().run(built));
}

Status AcrossHosts::run_row(const StagedCall& call, Nanos end) {
  if (straight_ != nullptr) return straight_->run({row_ranks_, row_->rank()}, call, end);
  return in_ranks_of(*wire_, *row_, pipeline_->run(row_->engine(), call, end));
}

/// A factor that lies on the device is read: it is applied on the host.
Result<double> AcrossHosts::scale_of(const Call& call, Nanos end) {
  if (call.device_scale == nullptr || call.facts.op != ReduceOp::premul_sum) return call.scale;
  LOCKSTEP_RETURN_IF_ERROR(
      backend_.copy(factor_->data(), call.device_scale, size_of(call.facts.type), stream_));
  LOCKSTEP_RETURN_IF_ERROR(await_stream(backend_, stream_, end == 0 ? kForever : end));
  const double scale = as_double(call.facts.type, factor_->data());
  if (!is_integer(call.facts.type) || std::abs(scale) < 0x1p53) return scale;
  return Status(
      ErrorCode::not_supported,
      "between hosts premul_sum of integers needs a factor of less than 2^53: scale the input yourself "
      "and use sum");
}

}  // namespace lockstep::internal
