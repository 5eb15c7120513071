#include "collectives/engine/local_step.hpp"

#include <algorithm>
#include <array>
#include <span>

#include "lib/reduce/copy.hpp"

namespace lockstep::internal {
namespace {

void run_copy(const Step& step, const Buffers& buffers, const Combine& combine, std::uint64_t first,
              std::uint64_t count) {
  const std::byte* from = buffers.read(step.src) + first * buffers.element;
  std::byte* to = buffers.write(step.dst) + first * buffers.element;
  if (step.finish && combine.op == ReduceOp::avg && combine.divisor != 1) {
    const void* source = from;
    void* destination = to;
    reduce(combine.reduction(count, true), {&source, 1}, {&destination, 1});
  } else if (step.dst.space == Space::staging) {
    buffers.hand_over->copy(to, from, count * buffers.element);
  } else if (from != to) {
    copy_bytes(to, from, count * buffers.element, combine.past_caches);
  }
}

/// Stays in the first-level cache between the reduction and the copy.
constexpr std::size_t kHandOverBlock = 8 << 10;

/// A reduction of which the last destination lies in staging, where peers read it: reduced to the others, or
/// to the stack when there are none, and handed over from there block by block. Apart from its caller, which
/// needs no such block most often.
[[gnu::noinline]] void reduce_and_hand_over(const Reduction& whole, std::span<const void*> sources,
                                            std::span<void*> destinations, const Buffers& buffers) {
  alignas(64) std::byte block[kHandOverBlock];
  std::byte* const staged = static_cast<std::byte*>(destinations.back());
  std::span<void*> kept = destinations.first(destinations.size() - 1);
  void* on_stack = block;
  const std::size_t step = kHandOverBlock / buffers.element;
  Reduction part = whole;
  part.past_caches = false;  // It is read again at once.
  for (std::size_t done = 0; done < whole.count; done += step) {
    part.count = std::min(step, whole.count - done);
    if (kept.empty()) {
      reduce(part, sources, {&on_stack, 1});
    } else {
      reduce(part, sources, kept);
    }
    const std::size_t bytes = part.count * buffers.element;
    buffers.hand_over->copy(staged + done * buffers.element, kept.empty() ? block : kept.front(), bytes);
    for (const void*& source : sources) source = static_cast<const std::byte*>(source) + bytes;
    for (void*& destination : kept) destination = static_cast<std::byte*>(destination) + bytes;
  }
}

/// `sources` and `destinations`: room for as many as the step has.
void run_reduce(const Program& program, const Step& step, const Buffers& buffers, const Combine& combine,
                std::uint64_t first, std::uint64_t count, const void** sources, void** destinations) {
  const std::size_t skip = first * buffers.element;
  const Slice* operand = &program.slices[step.operands];
  for (std::uint32_t i = 0; i < step.operand_count; ++i) sources[i] = buffers.read(operand[i]) + skip;
  // At most one destination is staging; it comes last.
  const Slice* destination = &program.slices[step.destinations];
  std::uint32_t front = 0, back = step.destination_count;
  for (std::uint32_t i = 0; i < step.destination_count; ++i) {
    const bool staged = destination[i].space == Space::staging;
    destinations[staged ? --back : front++] = buffers.write(destination[i]) + skip;
  }
  Reduction reduction = combine.reduction(count, step.finish);
  // Where it goes to several ranks, the next part is another one's.
  reduction.ends_backwards = front > 1 && first + count == destination->count;
  if (back < step.destination_count) {
    reduce_and_hand_over(reduction, {sources, step.operand_count}, {destinations, step.destination_count},
                         buffers);
  } else {
    reduce(reduction, {sources, step.operand_count}, {destinations, step.destination_count});
  }
}

}  // namespace

void run_local_step(const Program& program, const Step& step, const Buffers& buffers, const Combine& combine,
                    std::uint64_t first, std::uint64_t count) {
  if (count == 0) return;
  if (step.kind == StepKind::copy) return run_copy(step, buffers, combine, first, count);
  constexpr std::size_t kFew = 64;  // Small worlds stay on the stack.
  if (step.operand_count <= kFew && step.destination_count <= kFew) {
    std::array<const void*, kFew> sources;
    std::array<void*, kFew> destinations;
    return run_reduce(program, step, buffers, combine, first, count, sources.data(), destinations.data());
  }
  std::vector<const void*> sources(step.operand_count);
  std::vector<void*> destinations(step.destination_count);
  run_reduce(program, step, buffers, combine, first, count, sources.data(), destinations.data());
}

}  // namespace lockstep::internal
