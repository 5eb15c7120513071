#include "collectives/device/hosts/straight_calls.hpp"

#include <algorithm>

#include "collectives/device/patience.hpp"
#include "lib/base/env.hpp"

namespace lockstep::internal {

Result<std::unique_ptr<StraightCalls>> StraightCalls::make(Backend& backend, int device, DeviceStream stream,
                                                           DeviceMessenger& messenger, std::size_t bytes) {
  auto memory = TransitMemory::on_device(backend, device, bytes);
  if (!memory.ok()) return memory.status();
  return std::unique_ptr<StraightCalls>(new StraightCalls(backend, stream, messenger, std::move(*memory)));
}

/// One call on its way.
class StraightCalls::Call {
 public:
  Call(StraightCalls& owner, const Group& group, const StagedCall& what, Nanos end)
      : owner_(owner),
        group_(group),
        what_(what),
        end_(end),
        element_(size_of(what.type)),
        size_(group.ranks.size()),
        self_(static_cast<std::size_t>(group.self)) {}

  Status run() {
    if (what_.longest == 0) return {};
    switch (what_.collective) {
      case Collective::all_reduce:
      case Collective::reduce:
        return in_columns(size_ * room(), [&](const Column& column) { return reduce_parts(column); });
      case Collective::reduce_scatter:
      case Collective::reduce_scatter_v:
        return in_columns(room(), [&](const Column& column) { return reduce_blocks(column); });
      case Collective::broadcast:
        return broadcast();
      default:
        return move_blocks();
    }
  }

 private:
  /// Elements of what one rank gives to be reduced: the memory holds that of all.
  std::uint64_t room() const { return owner_.memory_->bytes() / element_ / size_; }
  std::byte* given_by(std::size_t member) const {
    return owner_.memory_->data() + member * room() * element_;
  }

  template <typename Work>
  Status in_columns(std::uint64_t longest, Work work) {
    if (room() == 0)
      return Status(ErrorCode::not_supported, "the staging memory is too small for " + std::to_string(size_) +
                                                  " ranks: raise LOCKSTEP_DEVICE_STAGING");
    for (std::uint64_t first = 0; first < what_.longest; first += longest)
      LOCKSTEP_RETURN_IF_ERROR(work(Column{first, std::min(longest, what_.longest - first)}));
    return {};
  }

  Status reduce_parts(const Column& column) {
    const bool to_all = what_.collective == Collective::all_reduce;
    const auto part = [&](std::size_t member) {
      const Range range = part_of(column.count, size_, member);
      return Range{column.first + range.begin, range.count};
    };
    const auto in = [&](std::size_t member) { return at(what_.input, 0, part(member).begin); };
    const auto out = [&](std::size_t member) { return at(what_.output, 0, part(member).begin); };
    const Range own = part(self_);
    for_others([&](std::size_t other) {
      send(other, in(other), part(other).count);
      receive(other, given_by(other), own.count);
    });
    LOCKSTEP_RETURN_IF_ERROR(exchange());
    const bool keeps = to_all || is_root();
    std::byte* const result = keeps ? out(self_) : given_by(self_);
    LOCKSTEP_RETURN_IF_ERROR(reduce(in(self_), result, own.count));
    for_others([&](std::size_t other) {
      if (to_all || is_root(other)) send(other, result, own.count);
      if (keeps) receive(other, out(other), part(other).count);
    });
    return exchange();
  }

  Status reduce_blocks(const Column& column) {
    const std::uint64_t own = column.of(what_.input.blocks[self_]);
    for_others([&](std::size_t other) {
      send(other, at(what_.input, other, column.first), column.of(what_.input.blocks[other]));
      receive(other, given_by(other), own);
    });
    LOCKSTEP_RETURN_IF_ERROR(exchange());
    return reduce(at(what_.input, self_, column.first), at(what_.output, 0, column.first), own);
  }

  Status broadcast() {
    const DeviceBlocks& side = is_root() ? what_.input : what_.output;
    const auto part = [&](std::size_t member) { return part_of(what_.longest, size_, member); };
    const auto in = [&](std::size_t member) { return at(side, 0, part(member).begin); };
    if (is_root()) {
      for_others([&](std::size_t other) { send(other, in(other), part(other).count); });
    } else {
      receive(root(), in(self_), part(self_).count);
    }
    LOCKSTEP_RETURN_IF_ERROR(exchange());
    for_others([&](std::size_t other) {
      if (!is_root(other)) send(other, in(self_), part(self_).count);
      if (!is_root()) receive(other, in(other), part(other).count);
    });
    return exchange();
  }

  /// scatter, gather, all_gather(_v), all_to_all: the sides have a block for each rank, or one.
  Status move_blocks() {
    const auto block = [](const DeviceBlocks& side, std::size_t member) {
      return side.blocks.size() == 1 ? 0 : member;
    };
    const bool one_gives = what_.collective == Collective::scatter;
    const bool one_takes = what_.collective == Collective::gather;
    for (std::size_t member = 0; member < size_; ++member) {
      if ((!one_gives || is_root()) && (!one_takes || is_root(member))) {
        const std::size_t from = block(what_.input, member);
        send(member, at(what_.input, from, 0), what_.input.blocks[from].count);
      }
      if ((!one_gives || is_root(member)) && (!one_takes || is_root())) {
        const std::size_t to = block(what_.output, member);
        receive(member, at(what_.output, to, 0), what_.output.blocks[to].count);
      }
    }
    return exchange();
  }

  // ---- what these are made of ----

  std::byte* at(const DeviceBlocks& side, std::size_t block, std::uint64_t element) const {
    return side.base + (side.blocks[block].first + element) * element_;
  }
  std::size_t root() const { return static_cast<std::size_t>(what_.root); }
  bool is_root(std::size_t member) const { return member == root(); }
  bool is_root() const { return is_root(self_); }

  template <typename Work>
  void for_others(Work work) const {
    for (std::size_t k = 1; k < size_; ++k) work((self_ + k) % size_);  // Everybody begins with another one.
  }

  void send(std::size_t member, std::byte* data, std::uint64_t count) { add(true, member, data, count); }
  void receive(std::size_t member, std::byte* data, std::uint64_t count) { add(false, member, data, count); }
  void add(bool sends, std::size_t member, std::byte* data, std::uint64_t count) {
    if (count > 0) messages_.push_back({sends, data, count * element_, group_.ranks[member], nullptr});
  }
  Status exchange() {
    Nanos left = 0;
    if (end_ != 0) left = std::max<Nanos>(1, end_ - real_env().now());
    Status status = owner_.messenger_.run(messages_, left);
    messages_.clear();
    return status;
  }

  /// The own elements and what the others gave, in the order of the ranks.
  Status reduce(const std::byte* own, std::byte* result, std::uint64_t count) {
    if (count == 0) return {};
    std::vector<const void*> sources;
    for (std::size_t member = 0; member < size_; ++member)
      sources.push_back(member == self_ ? own : given_by(member));
    void* const destination = result;
    ReduceJob job;
    job.type = what_.type;
    job.op = what_.op;
    job.count = count;
    job.sources = sources;
    job.destinations = {&destination, 1};
    if (what_.op == ReduceOp::avg) job.divisor = static_cast<double>(size_);
    LOCKSTEP_RETURN_IF_ERROR(owner_.backend_.reduce(job, owner_.stream_));
    return await_stream(owner_.backend_, owner_.stream_, end_ == 0 ? kForever : end_);
  }

  StraightCalls& owner_;
  const Group& group_;
  const StagedCall& what_;
  const Nanos end_;
  const std::size_t element_, size_, self_;
  std::vector<DeviceMessage> messages_;
};

Status StraightCalls::run(const Group& group, const StagedCall& call, Nanos end) {
  return Call(*this, group, call, end).run();
}

}  // namespace lockstep::internal
