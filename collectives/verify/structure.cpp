#include "collectives/verify/structure.hpp"

#include <set>
#include <utility>

#include "collectives/programs/blocks.hpp"

namespace lockstep::internal {
namespace {

/// Checks one rank's program. Findings are without the step's name, which the caller puts in front.
class StructureCheck {
 public:
  StructureCheck(const ProgramSet& set, int rank)
      : set_(set),
        rank_(rank),
        shape_(set.shapes[static_cast<std::size_t>(rank)]),
        program_(set.programs[static_cast<std::size_t>(rank)]) {}

  std::string whole() const {
    if (set_.medium != Medium::links && program_.lanes.size() != 1) return "a domain program has one lane";
    if (set_.medium == Medium::links && program_.phases != 0) return "a program over links publishes nothing";
    if (program_.phases != set_.programs[0].phases) return "publishes another number of phases than rank 0";
    return {};
  }

  std::string step(std::size_t lane, const Step& step) {
    for (const After& after : step.after) {
      if (after.steps == 0) continue;
      if (after.lane >= program_.lanes.size() || after.lane == lane)
        return "waits for a lane that is its own or does not exist";
      if (after.steps > program_.lanes[after.lane].steps.size())
        return "waits for a step that does not exist";
    }
    if (step.received_first && step.kind != StepKind::recv_reduce)
      return "has an operand order but receives no operand";
    const bool reduces =
        step.kind == StepKind::recv_reduce || step.kind == StepKind::reduce || step.kind == StepKind::copy;
    if (step.finish && !(reduces && is_reduction(shape_.collective))) return "finishes, but reduces nothing";
    switch (step.kind) {
      case StepKind::send:
        return first_of(exchange(lane, step, true), local(step.src));
      case StepKind::recv:
        return first_of(exchange(lane, step, false), local(step.dst));
      case StepKind::recv_reduce:
        if (step.src.count != step.dst.count) return "has operands of different lengths";
        return first_of(exchange(lane, step, false), first_of(local(step.src), local(step.dst)));
      case StepKind::copy:
        if (step.src.count != step.dst.count) return "copies between different lengths";
        return first_of(readable(step.src), writable(step.dst));
      case StepKind::reduce:
        return reduce(step);
      case StepKind::publish:
        if (set_.medium == Medium::links) return "publishes outside a domain";
        return step.phase == ++published_ ? "" : "publishes out of turn";
      case StepKind::await:
        if (set_.medium == Medium::links) return "awaits a phase outside a domain";
        if (step.phase == 0 || step.phase > program_.phases) return "awaits a phase that is never published";
        return step.peer == kSelf ? "" : peer(step.peer);
    }
    return {};
  }

  std::string end() const {
    return published_ == program_.phases ? ""
                                         : "publishes " + std::to_string(published_) + " of " +
                                               std::to_string(program_.phases) + " phases";
  }

 private:
  static std::string first_of(std::string one, std::string other) { return one.empty() ? other : one; }

  std::string peer(int peer) const {
    return peer >= 0 && peer < shape_.world && peer != rank_ ? "" : "names no peer";
  }

  std::string exchange(std::size_t lane, const Step& step, bool sends) {
    if (set_.medium != Medium::links) return "is a message inside a domain";
    auto& lanes = sends ? send_lanes_ : recv_lanes_;
    lanes.insert({step.peer, lane});
    const auto first = lanes.lower_bound({step.peer, 0});
    if (first->second != lane || std::next(first) != lanes.upper_bound({step.peer, program_.lanes.size()})) {
      return "is in another lane than earlier messages of this peer and direction";
    }
    return peer(step.peer);
  }

  std::string reduce(const Step& step) const {
    const auto slices = program_.slices.size();
    if (step.operand_count == 0 || step.destination_count == 0) return "reduces nothing";
    if (set_.medium == Medium::domain_pulled) return "reduces where memory is only copied";
    if (step.operands + step.operand_count > slices || step.destinations + step.destination_count > slices)
      return "names slices that do not exist";
    const std::uint64_t count = program_.slices[step.operands].count;
    for (std::uint32_t i = 0; i < step.operand_count + step.destination_count; ++i) {
      const bool operand = i < step.operand_count;
      const Slice& slice =
          program_.slices[operand ? step.operands + i : step.destinations + i - step.operand_count];
      if (slice.count != count) return "reduces slices of different lengths";
      if (std::string finding = operand ? readable(slice) : writable(slice); !finding.empty()) return finding;
    }
    return {};
  }

  std::string local(const Slice& slice) const {
    return slice.member == kSelf ? inside(slice) : "exchanges another rank's memory";
  }
  /// A rank reads its own memory, members' staging, and inputs that are registered or pulled.
  std::string readable(const Slice& slice) const {
    const bool allowed = slice.member == kSelf ||
                         (set_.medium == Medium::domain_staged && slice.space == Space::staging) ||
                         (reaches_buffers(set_.medium) && slice.space == Space::input);
    return allowed ? inside(slice) : "reads memory that it cannot address";
  }
  /// A rank writes its own output, scratch and staging, and registered outputs. Its input is written only as
  /// an output in place.
  std::string writable(const Slice& slice) const {
    if (slice.space == Space::input) return "writes an input";
    const bool allowed =
        slice.member == kSelf || (set_.medium == Medium::domain_registered && slice.space == Space::output);
    return allowed ? inside(slice) : "writes memory that is not its own";
  }

  std::string inside(const Slice& slice) const {
    if (slice.member != kSelf && (slice.member < 0 || slice.member >= shape_.world || slice.member == rank_))
      return "names no member";
    const Shape& owner = slice.member == kSelf ? shape_ : set_.shapes[static_cast<std::size_t>(slice.member)];
    std::uint64_t size = 0;
    switch (slice.space) {
      case Space::input:
        size = input_elements(owner);
        break;
      case Space::output:
        size = output_elements(owner);
        break;
      case Space::scratch:
        size = program_.scratch;
        break;
      case Space::staging:
        if (set_.medium != Medium::domain_staged) return "uses staging memory, which the medium lacks";
        size = owner.staging;
        break;
    }
    const bool fits = slice.offset <= size && slice.count <= size - slice.offset;
    return fits ? "" : "leaves a space of " + std::to_string(size) + " elements";
  }

  const ProgramSet& set_;
  int rank_;
  const Shape& shape_;
  const Program& program_;
  std::set<std::pair<int, std::size_t>> send_lanes_, recv_lanes_;
  std::uint32_t published_ = 0;
};

}  // namespace

std::string name_step(const ProgramSet& set, int rank, std::size_t lane, std::size_t step) {
  const Program& program = set.programs[static_cast<std::size_t>(rank)];
  return "rank " + std::to_string(rank) + " lane " + std::to_string(lane) + " step " + std::to_string(step) +
         " (" + to_string(program, program.lanes[lane].steps[step]) + ")";
}

std::string check_structure(const ProgramSet& set) {
  for (int rank = 0; rank < static_cast<int>(set.programs.size()); ++rank) {
    StructureCheck check(set, rank);
    if (std::string finding = check.whole(); !finding.empty())
      return "rank " + std::to_string(rank) + " " + finding;
    const auto& lanes = set.programs[static_cast<std::size_t>(rank)].lanes;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      for (std::size_t step = 0; step < lanes[lane].steps.size(); ++step) {
        std::string finding = check.step(lane, lanes[lane].steps[step]);
        if (!finding.empty()) return name_step(set, rank, lane, step) + " " + finding;
      }
    }
    if (std::string finding = check.end(); !finding.empty())
      return "rank " + std::to_string(rank) + " " + finding;
  }
  return {};
}

}  // namespace lockstep::internal
