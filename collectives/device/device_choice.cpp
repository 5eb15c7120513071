#include "collectives/device/device_choice.hpp"

#include "collectives/device/message_plan.hpp"
#include "collectives/programs/program.hpp"

namespace lockstep::internal {
namespace {

/// Up to here everybody reads everything: world times the traffic, but one synchronisation less.
constexpr std::uint64_t kOneShotBytes = 512 << 10;
/// From here on the ranks ask each other whether all buffers are registered. The question costs a line of
/// memory; the answer saves the staging.
constexpr std::uint64_t kOfferBytes = 32 << 10;

const Algorithm* row(const Shape& shape, Medium medium, std::string_view name) {
  const auto found = find_algorithm(shape.collective, medium, name);
  return found.ok() && found.value()->supports(shape) ? found.value() : nullptr;
}

/// From here on sums of more than two ranks go round a ring where kernels wait: more phases, but every GPU
/// reads from one neighbour alone.
constexpr std::uint64_t kRingBytes = 8 << 20;

/// Small floats would be rounded at every rank that they pass.
bool goes_round(const CallFacts& facts, const Shape& shape, std::uint64_t bytes) {
  return facts.collective == Collective::all_reduce && bytes >= kRingBytes && shape.world > 2 &&
         size_of(facts.type) > 2;
}

const Algorithm* staged_row(const Shape& shape, std::uint64_t bytes) {
  const bool all_reduce = shape.collective == Collective::all_reduce;
  if (all_reduce || shape.collective == Collective::reduce) {
    const Algorithm* const small = row(shape, Medium::domain_staged, all_reduce ? "one_shot" : "direct");
    if (bytes <= kOneShotBytes && small != nullptr) return small;
    return row(shape, Medium::domain_staged, "two_shot");
  }
  return row(shape, Medium::domain_staged, shape.collective == Collective::barrier ? "flags" : "direct");
}

const Algorithm* registered_row(const CallFacts& facts, const Shape& shape, std::uint64_t bytes,
                                bool take_turns) {
  // Staging takes the turns of all ranks, whatever the size.
  if (take_turns && facts.collective == Collective::all_reduce)
    return row(shape, Medium::domain_registered, "alone");
  const bool counts_differ =
      facts.collective == Collective::all_gather_v || facts.collective == Collective::reduce_scatter_v;
  if (bytes < kOfferBytes && !counts_differ) return nullptr;
  const std::string_view name = facts.collective == Collective::all_reduce ? "fused" : "direct";
  return row(shape, Medium::domain_registered, name);
}

Result<Selection> forced_choice(const Algorithm& forced, const Shape& shape) {
  if (forced.medium == Medium::links || !forced.supports(shape)) {
    return Status(ErrorCode::not_supported, "algorithm " + std::string(forced.name) +
                                                " does not run this call on a device; leave the choice to "
                                                "the library");
  }
  Selection selection;
  const bool registered = reaches_buffers(forced.medium);
  selection.registered = registered ? &forced : row(shape, Medium::domain_registered, forced.name);
  if (!registered) selection.staged = &forced;
  return selection;
}

}  // namespace

Result<Selection> choose_for_device(const CallFacts& facts, const Shape& shape, DeviceGround ground) {
  if (facts.algorithm > 0) return forced_choice(algorithms()[facts.algorithm - 1u], shape);
  Selection selection;
  if (passes_as_messages(facts.collective)) {
    selection.staged = find_algorithm(Collective::barrier, Medium::domain_staged, "flags").value();
    return selection;
  }
  const std::uint64_t bytes = call_bytes(facts, shape.counts);
  if (ground.kernels_wait && goes_round(facts, shape, bytes))
    selection.staged = row(shape, Medium::domain_staged, "pull_ring");
  if (selection.staged == nullptr) selection.staged = staged_row(shape, bytes);
  selection.registered = registered_row(facts, shape, bytes, ground.take_turns);
  if (selection.staged != nullptr) return selection;
  return Status(ErrorCode::not_supported, "the staging area is too small for " + std::to_string(shape.world) +
                                              " ranks: raise LOCKSTEP_DEVICE_STAGING");
}

}  // namespace lockstep::internal
