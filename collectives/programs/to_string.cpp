// A program as text: a line a step, "lane 0 step 3: send input[0,128) to 2 after lane 1 step 2".
#include <string>

#include "collectives/programs/program.hpp"

namespace lockstep::internal {
namespace {

std::string text(const Slice& slice) {
  constexpr const char* kNames[] = {"input", "output", "scratch", "staging"};
  std::string name = kNames[static_cast<std::size_t>(slice.space)];
  if (slice.member != kSelf) name += " of " + std::to_string(slice.member) + ' ';
  return name + '[' + std::to_string(slice.offset) + ',' + std::to_string(slice.offset + slice.count) + ')';
}

std::string join(const Program& program, std::uint32_t first, std::uint32_t count, const char* separator) {
  std::string joined;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (i > 0) joined += separator;
    joined += text(program.slices[first + i]);
  }
  return joined;
}

std::string place(std::size_t lane, std::size_t step) {
  return "lane " + std::to_string(lane) + " step " + std::to_string(step);
}

}  // namespace

std::string to_string(const Program& program, const Step& step) {
  const std::string peer = step.peer == kSelf ? "all" : std::to_string(step.peer);
  switch (step.kind) {
    case StepKind::send:
      return "send " + text(step.src) + " to " + peer;
    case StepKind::recv:
      return "recv " + text(step.dst) + " from " + peer;
    case StepKind::recv_reduce: {
      const std::string received = "received from " + peer;
      return text(step.dst) + " = " +
             (step.received_first ? received + " + " + text(step.src) : text(step.src) + " + " + received);
    }
    case StepKind::copy:
      return text(step.dst) + " = " + text(step.src);
    case StepKind::reduce:
      return join(program, step.destinations, step.destination_count, ", ") + " = " +
             join(program, step.operands, step.operand_count, " + ");
    case StepKind::publish:
      return "publish phase " + std::to_string(step.phase);
    case StepKind::await:
      return "await phase " + std::to_string(step.phase) + " of " + peer;
  }
  return "";
}

std::string to_string(const Program& program) {
  std::string listing =
      "scratch " + std::to_string(program.scratch) + ", phases " + std::to_string(program.phases) + '\n';
  for (std::size_t lane = 0; lane < program.lanes.size(); ++lane) {
    const auto& steps = program.lanes[lane].steps;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      listing += place(lane, i) + ": " + to_string(program, steps[i]);
      if (steps[i].finish) listing += ", finished";
      for (const After& after : steps[i].after) {
        if (after.steps > 0) listing += ", after " + place(after.lane, after.steps - 1);
      }
      listing += '\n';
    }
  }
  return listing;
}

}  // namespace lockstep::internal
