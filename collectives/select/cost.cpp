#include "collectives/select/cost.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <unordered_map>
#include <vector>

namespace lockstep::internal {
namespace {

/// Each step ends at a time that depends on steps before it alone, so they may be walked in any order in
/// which those come first.
class CostWalk {
 public:
  CostWalk(std::span<const Program> programs, std::size_t element_bytes, const MediumCost& cost,
           const SharedHosts& shared)
      : programs_(programs),
        element_bytes_(static_cast<double>(element_bytes)),
        cost_(cost),
        shared_(shared),
        crossing_(programs.size()),
        touch_(!programs.empty() && programs.front().phases > 0 ? cost.step : 0),
        ranks_(programs.size()) {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      ranks_[rank].ends.resize(programs[rank].lanes.size());
      wake(rank);
    }
  }

  double run() {
    while (!awake_.empty()) {
      const std::size_t rank = awake_.front();
      awake_.pop_front();
      ranks_[rank].awake = false;
      while (advance(rank)) {
      }
    }
    double last = 0;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      for (std::size_t lane = 0; lane < ranks_[rank].ends.size(); ++lane) {
        if (next_step(rank, lane) != nullptr) return std::numeric_limits<double>::infinity();
        last = std::max(last, time(rank, lane));
      }
    }
    return cost_.call + std::max(last, network_seconds()) + busy_seconds();
  }

 private:
  struct Rank {
    std::vector<std::vector<double>> ends;  ///< By lane: when each step that was walked ends.
    std::vector<double> published;          ///< By phase.
    bool awake = false;
  };

  void wake(std::size_t rank) {
    if (ranks_[rank].awake) return;
    ranks_[rank].awake = true;
    awake_.push_back(rank);
  }
  const Step* next_step(std::size_t rank, std::size_t lane) const {
    const auto& steps = programs_[rank].lanes[lane].steps;
    const std::size_t next = ranks_[rank].ends[lane].size();
    return next < steps.size() ? &steps[next] : nullptr;
  }
  double time(std::size_t rank, std::size_t lane) const {
    const auto& ends = ranks_[rank].ends[lane];
    return ends.empty() ? 0 : ends.back();
  }
  double bytes(const Slice& slice) const { return static_cast<double>(slice.count) * element_bytes_; }

  /// Walks one step of each lane of the rank that can be; false when there was none.
  bool advance(std::size_t rank) {
    bool moved = false;
    for (std::size_t lane = 0; lane < ranks_[rank].ends.size(); ++lane) {
      const Step* step = next_step(rank, lane);
      double start = time(rank, lane);
      if (step == nullptr || !dependencies(rank, *step, start)) continue;
      double end = start;
      if (!walk(rank, *step, start, end)) continue;
      ranks_[rank].ends[lane].push_back(end);
      moved = true;
    }
    return moved;
  }

  bool dependencies(std::size_t rank, const Step& step, double& start) const {
    for (const After& after : step.after) {
      if (after.steps == 0) continue;
      const auto& ends = ranks_[rank].ends[after.lane];
      if (ends.size() < after.steps) return false;
      start = std::max(start, ends[after.steps - 1]);
    }
    return true;
  }

  bool crosses(std::size_t rank, std::size_t peer) const {
    return shared_.of_rank.empty() || shared_.of_rank[rank] != shared_.of_rank[peer];
  }
  const MediumCost& cost_between(std::size_t rank, std::size_t peer) const {
    return crosses(rank, peer) ? cost_ : shared_.near;
  }
  /// What the busiest host's network needs for all that crosses it one way.
  double network_seconds() const {
    double most = 0;
    for (const Crossing& host : crossing_) most = std::max({most, host.out, host.in});
    return most * cost_.beta;
  }
  double busy_seconds() const {
    double bytes = 0;
    for (const Crossing& host : crossing_) bytes += host.out;
    return messages_ * shared_.busy_message + bytes * shared_.busy_byte;
  }
  void count_crossing(std::size_t rank, std::size_t peer, double bytes) {
    if (shared_.of_rank.empty()) return;
    ++messages_;
    if (!crosses(rank, peer)) return;
    crossing_[static_cast<std::size_t>(shared_.of_rank[rank])].out += bytes;
    crossing_[static_cast<std::size_t>(shared_.of_rank[peer])].in += bytes;
  }

  /// When the step ends; false when that is not known yet.
  bool walk(std::size_t rank, const Step& step, double start, double& end) {
    switch (step.kind) {
      case StepKind::send: {
        const auto peer = static_cast<std::size_t>(step.peer);
        const MediumCost& link = cost_between(rank, peer);
        end = start + link.step + bytes(step.src) * link.beta;
        arrivals_[rank * ranks_.size() + peer].push_back(end + link.alpha);
        count_crossing(rank, peer, bytes(step.src));
        wake(peer);
        return true;
      }
      case StepKind::recv:
      case StepKind::recv_reduce: {
        const auto peer = static_cast<std::size_t>(step.peer);
        const MediumCost& link = cost_between(rank, peer);
        auto& queue = arrivals_[peer * ranks_.size() + rank];
        if (queue.empty()) return false;
        end = std::max(queue.front(), start + bytes(step.dst) * link.beta) + link.step;
        queue.pop_front();
        if (step.kind == StepKind::recv_reduce) end += bytes(step.dst) * link.gamma;
        return true;
      }
      case StepKind::copy:
        end = start + touch_ + bytes(step.dst) * cost_.copy;
        return true;
      case StepKind::reduce:
        end = start + touch_ + bytes(programs_[rank].slices[step.operands]) * per_byte(step);
        return true;
      case StepKind::publish:
        ranks_[rank].published.push_back(start);
        for (std::size_t member = 0; member < ranks_.size(); ++member) wake(member);
        return true;
      case StepKind::await:
        return await(rank, step, start, end);
    }
    return false;
  }

  /// A lone operand is copied to each destination; otherwise the first store comes with the combining.
  double per_byte(const Step& step) const {
    const double operands = step.operand_count, destinations = step.destination_count;
    if (step.operand_count == 1) return destinations * cost_.copy;
    return (operands - 1) * cost_.gamma + (destinations - 1) * cost_.copy;
  }

  bool await(std::size_t rank, const Step& step, double start, double& end) const {
    end = start;
    for (std::size_t member = 0; member < ranks_.size(); ++member) {
      if (member == rank || (step.peer != kSelf && static_cast<std::size_t>(step.peer) != member)) continue;
      if (ranks_[member].published.size() < step.phase) return false;
      end = std::max(end, ranks_[member].published[step.phase - 1] + cost_.sync);
    }
    return true;
  }

  struct Crossing {
    double out = 0, in = 0;  // Bytes.
  };

  std::span<const Program> programs_;
  double element_bytes_;
  MediumCost cost_;
  const SharedHosts& shared_;
  std::vector<Crossing> crossing_;  ///< By host.
  double messages_ = 0;
  double touch_;  ///< What a copy or reduction takes whatever its length: next to nothing beside messages.
  std::vector<Rank> ranks_;
  std::unordered_map<std::size_t, std::deque<double>> arrivals_;  ///< By sender * world + receiver.
  std::deque<std::size_t> awake_;
};

}  // namespace

double predict_seconds(std::span<const Program> programs, std::size_t element_bytes, const MediumCost& cost,
                       const SharedHosts& shared) {
  return CostWalk(programs, element_bytes, cost, shared).run();
}

}  // namespace lockstep::internal
