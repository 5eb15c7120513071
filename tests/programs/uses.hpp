// What a step reads and writes.
#pragma once

#include <vector>

#include "collectives/programs/program.hpp"

namespace lockstep::internal {

struct Uses {
  std::vector<Slice> reads, writes;
};
inline Uses uses_of(const Program& program, const Step& step) {
  Uses uses;
  const auto listed = [&](std::uint32_t first, std::uint32_t count) {
    return std::vector<Slice>(program.slices.begin() + first, program.slices.begin() + first + count);
  };
  switch (step.kind) {
    case StepKind::send:
      uses.reads = {step.src};
      break;
    case StepKind::recv:
      uses.writes = {step.dst};
      break;
    case StepKind::recv_reduce:
    case StepKind::copy:
      uses.reads = {step.src};
      uses.writes = {step.dst};
      break;
    case StepKind::reduce:
      uses.reads = listed(step.operands, step.operand_count);
      uses.writes = listed(step.destinations, step.destination_count);
      break;
    case StepKind::publish:
    case StepKind::await:
      break;
  }
  return uses;
}

}  // namespace lockstep::internal
