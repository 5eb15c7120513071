#include "collectives/device/packet_plan.hpp"

#include <algorithm>
#include <vector>

#include "collectives/device/message_plan.hpp"
#include "collectives/programs/blocks.hpp"
#include "collectives/programs/domain/domain.hpp"
#include "lib/device/sync/sync_kernels.hpp"
#include "lib/reduce/cuda/plan.hpp"

namespace lockstep::internal {
namespace {

using sync::PacketArguments;
using sync::Region;

// By rule, from what others have measured on such machines; nothing here is measured.
/// An all_reduce to here sends everything to everybody, which takes one way instead of two.
constexpr std::uint64_t kPacketOneShotBytes = 64 << 10;
/// Largest block of a packet call: above it half of the traffic, which is flags, costs more than a phase.
constexpr std::uint64_t kPacketBytes = 512 << 10;

class Planner {
 public:
  Planner(const CallFacts& facts, const Shape& shape)
      : shape_(shape), element_(size_of(facts.type)), blocks_(blocks_of(shape)) {
    plan_.rank = shape.rank;
    plan_.world = shape.world;
    choose_kernel(facts);
  }

  /// Nothing where a block is larger than `most`.
  std::optional<PacketArguments> plan(std::uint64_t most, int most_blocks) && {
    const std::uint64_t whole = shape_.count * element_;
    const bool two_shot =
        shape_.collective == Collective::all_reduce && whole > std::min(kPacketOneShotBytes, most);
    const std::uint64_t largest = cuts_whole() && !two_shot ? whole : blocks_.longest() * element_;
    if (largest > most) return std::nullopt;
    fill(two_shot);
    plan_.blocks = std::min(most_blocks, sync::packet_blocks(largest));
    return plan_;
  }

 private:
  /// all_reduce and its like have one buffer, which is cut only for two-shot; the rest are made of blocks.
  static Blocks blocks_of(const Shape& shape) {
    switch (shape.collective) {
      case Collective::all_reduce:
        return aligned_parts(shape.count, shape.world);
      case Collective::barrier:
      case Collective::reduce:
      case Collective::broadcast:
        return Blocks::parts(0, shape.world);
      default:
        return Blocks::of(shape);
    }
  }
  bool cuts_whole() const {
    return shape_.collective == Collective::all_reduce || shape_.collective == Collective::reduce ||
           shape_.collective == Collective::broadcast;
  }
  bool at_root() const { return shape_.rank == shape_.root; }
  Region whole() const { return {0, shape_.count * element_}; }
  Region block(int of) const {
    const Range range = blocks_[of];
    return {range.begin * element_, range.count * element_};
  }
  Region first_block(int of) const { return {0, block(of).bytes}; }

  void choose_kernel(const CallFacts& facts) {
    plan_.type = DataType::u8;
    plan_.op = ReduceOp::bor;
    plan_.divisor = 1;
    if (!is_reduction(facts.collective)) return;
    ReduceJob job;
    job.type = facts.type;
    job.op = facts.op;
    const std::vector<const void*> sources(2);  // More than one: not a copy.
    const std::vector<ScaleFactor> factors(2);
    job.sources = sources;
    job.divisor = shape_.world;
    plan_.scaled = facts.op == ReduceOp::premul_sum;
    if (plan_.scaled) job.factors = factors;
    const cuda::Work work = cuda::work_of(job);
    plan_.type = work.type;
    plan_.op = work.op;
    plan_.divisor = work.divisor;
  }

  template <typename Of>
  void send_each(Of region_of) {
    for (int peer = 0; peer < shape_.world; ++peer)
      if (peer != shape_.rank) plan_.send[peer] = region_of(peer);
  }
  template <typename Of>
  void place_each(Of region_of) {
    for (int peer = 0; peer < shape_.world; ++peer)
      if (peer != shape_.rank) plan_.place[peer] = region_of(peer);
  }
  void reduce(Region region, std::uint64_t to) {
    plan_.reduce = region;
    plan_.reduce_to = to;
  }
  void keep(Region region, std::uint64_t to) {
    plan_.keep = region;
    plan_.keep_to = to;
  }

  void fill(bool two_shot) {
    const int self = shape_.rank, root = shape_.root;
    const auto blocks = [this](int peer) { return block(peer); };
    const auto all = [this](int) { return whole(); };
    switch (shape_.collective) {
      case Collective::all_reduce:
        plan_.forward = two_shot;
        if (!two_shot) {
          send_each(all);
          return reduce(whole(), 0);
        }
        send_each(blocks);
        place_each(blocks);
        return reduce(block(self), block(self).offset);
      case Collective::reduce:
        if (at_root()) return reduce(whole(), 0);
        plan_.send[root] = whole();
        return;
      case Collective::reduce_scatter:
      case Collective::reduce_scatter_v:
        send_each(blocks);
        return reduce(block(self), 0);
      case Collective::broadcast:
        if (at_root()) return send_each(all);
        plan_.place[root] = whole();
        return;
      case Collective::scatter:
        if (!at_root()) {
          plan_.place[root] = first_block(self);
          return;
        }
        send_each(blocks);
        return keep(block(self), 0);
      case Collective::gather:
        if (!at_root()) {
          plan_.send[root] = first_block(self);
          return;
        }
        place_each(blocks);
        return keep(first_block(self), block(self).offset);
      case Collective::all_gather:
      case Collective::all_gather_v:
        send_each([&](int) { return first_block(self); });
        place_each(blocks);
        return keep(first_block(self), block(self).offset);
      case Collective::all_to_all:
        send_each(blocks);
        place_each(blocks);
        return keep(block(self), block(self).offset);
      default:
        return;  // A barrier is its tokens.
    }
  }

  const Shape& shape_;
  const std::size_t element_;
  const Blocks blocks_;
  PacketArguments plan_{};
};

}  // namespace

std::optional<sync::PacketArguments> plan_packets(const CallFacts& facts, const Shape& shape,
                                                  std::uint64_t slot_bytes, int most_blocks) {
  if (facts.algorithm > 0 || passes_as_messages(facts.collective) || shape.world > sync::kMaxPacketRanks)
    return std::nullopt;
  return Planner(facts, shape).plan(std::min(kPacketBytes, slot_payload(slot_bytes)), most_blocks);
}

}  // namespace lockstep::internal
