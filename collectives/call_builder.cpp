#include "collectives/call_builder.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "collectives/programs/blocks.hpp"
#include "collectives/select/choose.hpp"
#include "collectives/select/names.hpp"
#include "lib/base/element_types.hpp"
#include "lib/base/hash.hpp"
#include "lib/reduce/reduce.hpp"

namespace lockstep::internal {
namespace {

std::uint64_t most_elements(DataType type) {
  return static_cast<std::uint64_t>(PTRDIFF_MAX) / std::max<std::size_t>(size_of(type), 1);
}

/// And none that a double stands for besides another.
bool is_whole(double factor) { return std::abs(factor) < 0x1p53 && factor == std::trunc(factor); }

std::uint64_t sum(std::span<const std::size_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}

/// What is wrong with it, if anything.
Status find_fault(const Message& message, int world) {
  const bool any_source = !message.is_send && message.peer == kAnySource;
  if (!any_source && (message.peer < 0 || message.peer >= world)) {
    return Status(ErrorCode::invalid_argument,
                  std::string(message.is_send ? "destination " : "source ") + std::to_string(message.peer) +
                      " is out of range: the group has ranks 0 to " + std::to_string(world - 1));
  }
  if (message.tag < 0 && (message.is_send || message.tag != kAnyTag)) {
    return Status(ErrorCode::invalid_argument,
                  "tag " + std::to_string(message.tag) + " is negative: pass 0 or more");
  }
  if (size_of(message.type) == 0)
    return Status(ErrorCode::invalid_argument,
                  "there is no element type " + std::to_string(static_cast<int>(message.type)));
  if (message.count > most_elements(message.type))
    return Status(ErrorCode::invalid_argument,
                  "a count of " + std::to_string(message.count) + " is more than memory holds");
  if (message.count > 0 && message.buffer == nullptr)
    return Status(ErrorCode::invalid_argument, "the buffer is null");
  return {};
}

}  // namespace

CallBuilder::CallBuilder(Collective collective, const Engine& engine, const CallOptions& options)
    : rank_(engine.group().rank),
      world_(engine.group().size()),
      domain_(world_ == 1 || engine.capabilities().domain) {  // Alone nothing runs, of either kind.
  call_.facts.collective = collective;
  call_.timeout = timeout_of(options);
  call_.priority = options.priority;
  call_.scale = options.scale;
  call_.user_op = options.user_op;
  if (!options.algorithm.empty()) force_algorithm(options.algorithm);
}

CallBuilder::CallBuilder(const CallFacts& facts, const Engine& engine, const CallOptions& options)
    : CallBuilder(facts.collective, engine, options) {
  elements(facts.type, facts.count);
  if (is_reduction(facts.collective)) reduction(facts.op);
  root(facts.root);
}

/// This rank is the culprit here as it is at the peers, which hear of it.
void CallBuilder::refuse(ErrorCode code, std::string message) {
  if (call_.refusal.ok()) call_.refusal = Status(code, std::move(message), rank_);
}

/// It becomes one of the facts: a rank that forces another one is found out.
void CallBuilder::force_algorithm(std::string_view name) {
  auto number = resolve_algorithm(call_.facts.collective, name, domain_);
  if (number.ok()) {
    call_.facts.algorithm = *number;
  } else {
    refuse(ErrorCode::invalid_argument, number.status().message());
  }
}

/// Its rules are for calls whose caller names no algorithm.
void CallBuilder::follow_environment() {
  if (call_.facts.algorithm != 0 || environment_rules().empty()) return;
  const std::string_view name =
      environment_rules().name_for(call_.facts.collective, call_bytes(call_.facts, counts_));
  if (name.empty()) return;
  auto number = resolve_algorithm(call_.facts.collective, name, domain_);
  if (!number.ok()) return refuse(ErrorCode::configuration, rule_cannot_run(number.status()).message());
  call_.facts.algorithm = *number;
}

CallBuilder& CallBuilder::tighten(const Call& other) {
  if (other.timeout != 0 && (call_.timeout == 0 || other.timeout < call_.timeout))
    call_.timeout = other.timeout;
  call_.priority = std::max(call_.priority, other.priority);
  return *this;
}

CallBuilder& CallBuilder::buffers(const void* input, void* output) {
  call_.input = input;
  call_.output = output;
  return *this;
}

CallBuilder& CallBuilder::elements(DataType type, std::uint64_t count) {
  call_.facts.type = type;
  call_.facts.count = count;
  if (static_cast<int>(type) >= kDataTypeCount)
    refuse(ErrorCode::invalid_argument, "there is no element type " + std::to_string(static_cast<int>(type)));
  return *this;
}

CallBuilder& CallBuilder::reduction(ReduceOp op) {
  call_.facts.op = op;
  if (Status status = check_reduction(call_.facts.type, op); !status.ok()) {
    refuse(status.code(), status.message());
  } else if (op == ReduceOp::premul_sum && is_integer(call_.facts.type) && !is_whole(call_.scale)) {
    refuse(ErrorCode::invalid_argument, "premul_sum of " + std::string(name_of(call_.facts.type)) +
                                            " needs a factor that is a whole number of less than 2^53, not " +
                                            std::to_string(call_.scale));
  }
  return *this;
}

CallBuilder& CallBuilder::root(int root) {
  call_.facts.root = root;
  if (root < 0 || root >= world_) {
    refuse(ErrorCode::invalid_argument, "root " + std::to_string(root) +
                                            " is out of range: the group has ranks 0 to " +
                                            std::to_string(world_ - 1));
  }
  return *this;
}

/// One for each rank, of which this one reads them all.
void CallBuilder::take_counts(std::span<const std::size_t> counts) {
  counts_.assign(counts.begin(), counts.end());
  if (counts_.size() == static_cast<std::size_t>(world_)) return;
  refuse(ErrorCode::invalid_argument, "counts has " + std::to_string(counts_.size()) + " entries for " +
                                          std::to_string(world_) + " ranks");
  counts_.resize(static_cast<std::size_t>(world_));
}

CallBuilder& CallBuilder::agree_on(std::span<const std::size_t> counts) {
  call_.facts.extra = 1;  // Not 0: describe() tells a v-variant by it.
  for (const std::size_t one : counts) call_.facts.extra = hash_combine(call_.facts.extra, one);
  return *this;
}

CallBuilder& CallBuilder::counts(std::span<const std::size_t> counts) {
  take_counts(counts);
  return agree_on(counts);
}

CallBuilder& CallBuilder::root_counts(std::span<const std::size_t> counts, std::size_t own) {
  const auto self = static_cast<std::size_t>(rank_);
  call_.facts.extra = 1;
  if (rank_ == call_.facts.root) {
    take_counts(counts);
    if (counts_[self] != own) {
      refuse(ErrorCode::invalid_argument, "counts[" + std::to_string(rank_) + "] is " +
                                              std::to_string(counts_[self]) +
                                              " but this rank's own count is " + std::to_string(own));
    }
  } else {
    counts_.assign(static_cast<std::size_t>(world_), 0);
    counts_[self] = own;
  }
  return *this;
}

CallBuilder& CallBuilder::pair_counts(std::span<const std::size_t> send, std::span<const std::size_t> recv) {
  const auto world = static_cast<std::size_t>(world_);
  call_.facts.extra = 1;
  counts_.assign(send.begin(), send.end());
  recv_counts_.assign(recv.begin(), recv.end());
  if (send.size() != world || recv.size() != world) {
    refuse(ErrorCode::invalid_argument,
           "send_counts and recv_counts need one entry per rank (" + std::to_string(world_) + ")");
    counts_.resize(world);
    recv_counts_.resize(world);
  } else if (counts_[static_cast<std::size_t>(rank_)] != recv_counts_[static_cast<std::size_t>(rank_)]) {
    refuse(ErrorCode::invalid_argument,
           "what this rank sends to itself differs from what it receives from itself");
  }
  return *this;
}

CallBuilder& CallBuilder::on_device(const void* scale) {
  call_.device_scale = scale;
  if (call_.facts.op == ReduceOp::premul_sum) check_pointer("device_scale", scale, scale != nullptr ? 1 : 0);
  if (call_.facts.op == ReduceOp::user) {
    refuse(
        ErrorCode::not_supported,
        "a user's operator is a function of the host and cannot run on a device: reduce host memory with a "
        "Communicator");
  }
  return *this;
}

/// More than an address space holds is a mistake, most often a negative number. Nothing that is computed of
/// the counts later can overflow.
void CallBuilder::check_counts() {
  std::uint64_t most = call_.facts.count;
  for (const std::size_t count : counts_) most = std::max<std::uint64_t>(most, count);
  for (const std::size_t count : recv_counts_) most = std::max<std::uint64_t>(most, count);
  if (most <= most_elements(call_.facts.type) / static_cast<std::uint64_t>(world_)) return;
  refuse(ErrorCode::invalid_argument, "a count of " + std::to_string(most) + " is more than memory holds");
}

/// How many elements of input and output this rank's part touches.
void CallBuilder::size_buffers() {
  const bool at_root = rank_ == call_.facts.root;
  const std::uint64_t own = counts_.empty() ? 0 : counts_[static_cast<std::size_t>(rank_)];
  std::uint64_t& in = call_.input_elements;
  std::uint64_t& out = call_.output_elements;
  switch (call_.facts.collective) {
    case Collective::scatter_v:
      in = at_root ? sum(counts_) : 0, out = own;
      break;
    case Collective::gather_v:
      in = own, out = at_root ? sum(counts_) : 0;
      break;
    case Collective::all_gather_v:
      in = own, out = sum(counts_);
      break;
    case Collective::reduce_scatter_v:
      in = sum(counts_), out = own;
      break;
    case Collective::all_to_all_v:
      in = sum(counts_), out = sum(recv_counts_);
      break;
    default: {
      const BufferElements elements = buffer_elements(call_.facts, rank_, world_);
      in = elements.input, out = elements.output;
    }
  }
}

void CallBuilder::check_pointer(const char* which, const void* pointer, std::uint64_t elements) {
  if (elements == 0) return;
  if (pointer == nullptr) {
    refuse(ErrorCode::invalid_argument,
           std::string(which) + " is null, but " + std::to_string(elements) + " elements are used of it");
  } else if (!is_aligned(pointer, call_.facts.type)) {
    refuse(ErrorCode::invalid_argument, std::string(which) + " is not aligned to " +
                                            std::to_string(alignment_of(call_.facts.type)) + " bytes, as " +
                                            std::string(name_of(call_.facts.type)) + " needs");
  }
}

/// Where the smaller buffer lies in the larger one when the call is in place.
std::uint64_t CallBuilder::in_place_offset_elements(bool& input_inside_output) const {
  const auto self = static_cast<std::size_t>(rank_);
  const std::uint64_t before = std::accumulate(
      counts_.begin(), counts_.begin() + static_cast<std::ptrdiff_t>(std::min(self, counts_.size())),
      std::uint64_t{0});
  switch (call_.facts.collective) {
    case Collective::gather:
    case Collective::all_gather:
      input_inside_output = true;
      return self * call_.facts.count;
    case Collective::gather_v:
    case Collective::all_gather_v:
      input_inside_output = true;
      return before;
    case Collective::scatter:
    case Collective::reduce_scatter:
      input_inside_output = false;
      return self * call_.facts.count;
    case Collective::scatter_v:
    case Collective::reduce_scatter_v:
      input_inside_output = false;
      return before;
    default:
      input_inside_output = true;
      return 0;
  }
}

void CallBuilder::check_overlap() {
  if (call_.input_elements == 0 || call_.output_elements == 0) return;
  if (call_.facts.collective == Collective::all_reduce && call_.input == call_.output) return;
  const std::size_t element = size_of(call_.facts.type);
  const auto in = reinterpret_cast<std::uintptr_t>(call_.input),
             out = reinterpret_cast<std::uintptr_t>(call_.output);
  const bool apart =
      in + call_.input_elements * element <= out || out + call_.output_elements * element <= in;
  if (apart) return;
  const bool exchange =
      call_.facts.collective == Collective::all_to_all || call_.facts.collective == Collective::all_to_all_v;
  bool input_inside = true;
  const std::uintptr_t offset = in_place_offset_elements(input_inside) * element;
  const bool in_place = input_inside ? in == out + offset : out == in + offset;
  if (!in_place || exchange) {
    refuse(ErrorCode::invalid_argument,
           "input and output overlap" +
               std::string(exchange ? ": this collective does not work in place"
                                    : " without being in place: give equal or separate buffers"));
  }
}

const Call& CallBuilder::build() {
  follow_environment();
  if (call_.facts.op == ReduceOp::user && call_.user_op.combine == nullptr)
    refuse(ErrorCode::invalid_argument, "ReduceOp::user needs CallOptions::user_op");
  check_counts();
  size_buffers();
  check_pointer("input", call_.input, call_.input_elements);
  if (call_.output != call_.input || call_.input_elements == 0)
    check_pointer("output", call_.output, call_.output_elements);
  if (call_.refusal.ok()) check_overlap();
  call_.counts = counts_;
  call_.recv_counts = recv_counts_;
  return call_;
}

Status check_message(const Message& message, int world) {
  const Status fault = find_fault(message, world);
  return fault.ok() ? fault : fault.with_context(describe(message));
}

}  // namespace lockstep::internal
