// Steps that touch memory only: copy and reduce, for links and domains alike.
#include <array>

#include "collectives/engine/link_run.hpp"

namespace lockstep::internal {
namespace {

void run_copy(const Step& step, const Buffers& buffers, const Combine& combine, std::uint64_t first,
              std::uint64_t count) {
  const std::byte* from = buffers.read(step.src) + first * buffers.element;
  std::byte* to = buffers.write(step.dst) + first * buffers.element;
  if (step.finish && combine.op == ReduceOp::avg) {
    const void* source = from;
    void* destination = to;
    reduce(combine.reduction(count, true), {&source, 1}, {&destination, 1});
  } else if (from != to) {
    copy_bytes(to, from, count * buffers.element);
  }
}

}  // namespace

void run_local_step(const Program& program, const Step& step, const Buffers& buffers, const Combine& combine,
                    std::uint64_t first, std::uint64_t count) {
  if (count == 0) return;
  if (step.kind == StepKind::copy) return run_copy(step, buffers, combine, first, count);
  // Small worlds stay on the stack; a reduce over hundreds of members takes the heap.
  std::array<const void*, 64> few_sources;
  std::array<void*, 64> few_destinations;
  std::vector<const void*> many_sources;
  std::vector<void*> many_destinations;
  const void** sources = few_sources.data();
  void** destinations = few_destinations.data();
  if (step.operand_count > few_sources.size()) {
    many_sources.resize(step.operand_count);
    sources = many_sources.data();
  }
  if (step.destination_count > few_destinations.size()) {
    many_destinations.resize(step.destination_count);
    destinations = many_destinations.data();
  }
  const std::size_t skip = first * buffers.element;
  for (std::uint32_t i = 0; i < step.operand_count; ++i) {
    sources[i] = buffers.read(program.slices[step.operands + i]) + skip;
  }
  for (std::uint32_t i = 0; i < step.destination_count; ++i) {
    destinations[i] = buffers.write(program.slices[step.destinations + i]) + skip;
  }
  reduce(combine.reduction(count, step.finish), {sources, step.operand_count},
         {destinations, step.destination_count});
}

}  // namespace lockstep::internal
