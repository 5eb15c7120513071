// all_to_all "hierarchical": every rank hands its blocks to the leader of its host; leaders exchange what
// their hosts have for each other in one message each; every leader deals out what came.
//
// Bytes over the network are those of direct; messages there are hosts - 1 for each host instead of one for
// every pair of ranks. Every block is copied twice more, so it is for small ones.
// all_to_all_v has no such program: a leader does not know what its host's ranks send.
#include "collectives/programs/algorithms.hpp"
#include "collectives/programs/blocks.hpp"
#include "collectives/programs/hosts/host_layout.hpp"
#include "collectives/programs/program_builder.hpp"

namespace lockstep::internal {
namespace {

/// One leader's part.
class LeaderOfAllToAll {
 public:
  explicit LeaderOfAllToAll(const Shape& shape)
      : shape_(shape), hosts_(shape), world_(static_cast<std::uint64_t>(shape.world)) {}

  Program build() && {
    collect();
    pack();
    exchange();
    deal();
    return std::move(builder_).build();
  }

 private:
  std::uint64_t ranks_on(int host) const { return hosts_.ranks(host).size(); }
  std::uint64_t mine() const { return hosts_.mine().size(); }
  std::uint64_t blocks(std::uint64_t count) const { return count * shape_.count; }

  /// All blocks of every rank of this host, one rank after the other; the leader's own stay in its input.
  void collect() {
    collected_ = builder_.reserve(blocks((mine() - 1) * world_));
    for (std::uint64_t local = 1; local < mine(); ++local)
      arrived_ = receives_.recv(hosts_.mine()[local], from_local(local, 0, world_));
  }
  /// `count` blocks that number `local` of this host has for ranks `to` and following.
  Slice from_local(std::uint64_t local, std::uint64_t to, std::uint64_t count) const {
    if (local == 0) return input({blocks(to), blocks(count)});
    return scratch({collected_.begin + blocks((local - 1) * world_ + to), blocks(count)});
  }

  /// For each host: by rank there, the blocks of all ranks here. So they lie there as they came, and what one
  /// rank of that host gets from here is one range.
  void pack() {
    for (int host = 0; host < hosts_.size(); ++host) {
      const Range packed = builder_.reserve(blocks(ranks_on(host) * mine()));
      std::uint64_t at = packed.begin;
      After done;
      for (const int to : hosts_.ranks(host)) {
        for (std::uint64_t local = 0; local < mine(); ++local, at += shape_.count) {
          done = copies_.copy(from_local(local, static_cast<std::uint64_t>(to), 1),
                              scratch({at, shape_.count}), {arrived_});
        }
      }
      packed_.push_back(packed);
      packed_when_.push_back(done);
    }
  }

  void exchange() {
    came_ = packed_;
    came_when_.resize(packed_.size());  // What stays on this host was packed by the lane that deals it out.
    for (int step = 1; step < hosts_.size(); ++step) {
      const int to = wrap(hosts_.own() + step, hosts_.size()),
                from = wrap(hosts_.own() - step, hosts_.size());
      const auto sent = static_cast<std::size_t>(to), got = static_cast<std::size_t>(from);
      sends_.send(hosts_.ranks(to).front(), scratch(packed_[sent]), {packed_when_[sent]});
      came_[got] = builder_.reserve(blocks(mine() * ranks_on(from)));
      came_when_[got] = receives_.recv(hosts_.ranks(from).front(), scratch(came_[got]));
    }
  }

  /// To each rank of this host: all blocks for it, by the rank that they are from.
  void deal() {
    for (std::uint64_t local = 0; local < mine(); ++local) {
      const Slice dealt =
          local == 0 ? output({0, blocks(world_)}) : scratch(builder_.reserve(blocks(world_)));
      After done;
      for (int host = 0; host < hosts_.size(); ++host) {
        const auto from = static_cast<std::size_t>(host);
        std::uint64_t at = came_[from].begin + blocks(local * ranks_on(host));
        for (const int rank : hosts_.ranks(host)) {
          const Slice place{dealt.space, kSelf, dealt.offset + blocks(static_cast<std::uint64_t>(rank)),
                            shape_.count};
          done = copies_.copy(scratch({at, shape_.count}), place, {came_when_[from]});
          at += shape_.count;
        }
      }
      if (local > 0) sends_.send(hosts_.mine()[local], dealt, {done});
    }
  }

  const Shape& shape_;
  const HostLayout hosts_;
  const std::uint64_t world_;
  ProgramBuilder builder_;
  LaneBuilder sends_ = builder_.lane(), receives_ = builder_.lane(), copies_ = builder_.lane();
  Range collected_;
  After arrived_;                     // The last rank's blocks.
  std::vector<Range> packed_, came_;  // By host.
  std::vector<After> packed_when_, came_when_;
};

}  // namespace

Program all_to_all_hierarchical(const Shape& shape) {
  const HostLayout hosts(shape);
  if (hosts.local() == 0) return LeaderOfAllToAll(shape).build();
  ProgramBuilder builder;
  const Range all{0, shape.count * static_cast<std::uint64_t>(shape.world)};
  LaneBuilder sends = builder.lane(), receives = builder.lane();
  sends.send(hosts.mine().front(), input(all));
  receives.recv(hosts.mine().front(), output(all));
  return std::move(builder).build();
}

}  // namespace lockstep::internal
