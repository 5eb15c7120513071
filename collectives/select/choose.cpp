#include "collectives/select/choose.hpp"

#include <string>

#include "transports/domain.hpp"

namespace lockstep::internal {
namespace {

/// Above this a domain call first finds out whether all buffers are registered; below, the exchange costs
/// more than it can win.
constexpr std::uint64_t kOfferBytes = 4096;
/// Over links: up to here latency decides, and every rank sends everything in log2(n) rounds.
constexpr std::uint64_t kLatencyBytes = 16384;

const Algorithm* row(Collective collective, Medium medium, std::string_view name, const Shape& shape) {
  const auto found = find_algorithm(collective, medium, name);
  return found.ok() && found.value()->supports(shape) ? found.value() : nullptr;
}

/// The first supported row of a medium.
const Algorithm* any_row(Collective collective, Medium medium, const Shape& shape) {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.collective == collective && algorithm.medium == medium && algorithm.supports(shape))
      return &algorithm;
  }
  return nullptr;
}

std::string_view preferred_over_links(Collective collective, std::uint64_t bytes, int world) {
  const bool small = bytes <= kLatencyBytes;
  switch (collective) {
    case Collective::all_reduce:
      return small ? "recursive_doubling" : "ring";
    case Collective::reduce:
      return small ? "binomial" : "ring";
    case Collective::broadcast:
      return small || world <= 2 ? "binomial" : "chain";
    case Collective::all_gather:
      return small ? "bruck" : "ring";
    case Collective::reduce_scatter:
      return small ? "direct" : "ring";
    case Collective::all_gather_v:
      return "ring";
    case Collective::reduce_scatter_v:
      return "ring";
    case Collective::scatter:
    case Collective::gather:
      return small ? "binomial" : "direct";
    case Collective::barrier:
      return "dissemination";
    default:
      return "direct";
  }
}

Result<Selection> forced(const Algorithm& algorithm, const Shape& shape, const Capabilities& capabilities) {
  if (!algorithm.supports(shape)) {
    return Status(ErrorCode::not_supported,
                  "algorithm " + std::string(algorithm.name) + " does not support this shape of " +
                      std::string(name_of(algorithm.collective)) + "; leave the choice to the library");
  }
  Selection selection;
  if (algorithm.medium == Medium::links) {
    selection.links = &algorithm;
    return selection;
  }
  if (!capabilities.domain) {
    return Status(ErrorCode::not_supported,
                  "algorithm " + std::string(algorithm.name) +
                      " needs shared memory among all ranks, which this communicator has not");
  }
  if (algorithm.medium == Medium::domain_registered) {
    selection.registered = &algorithm;
  } else {
    selection.staged = &algorithm;
    selection.registered = row(algorithm.collective, Medium::domain_registered, algorithm.name, shape);
  }
  return selection;
}

}  // namespace

Result<Selection> choose(const CallFacts& facts, const Shape& shape, const Capabilities& capabilities) {
  if (facts.algorithm > 0) return forced(algorithms()[facts.algorithm - 1u], shape, capabilities);
  const std::uint64_t bytes = facts.count * size_of(facts.type);
  Selection selection;
  if (capabilities.domain) {
    const bool fits_line = facts.collective == Collective::barrier ||
                           (facts.collective == Collective::all_reduce && bytes <= kInlinePayload);
    if (fits_line && capabilities.inline_line) {
      selection.inline_line = true;
      return selection;
    }
    if (facts.collective == Collective::all_reduce && bytes <= kOfferBytes) {
      selection.staged = row(facts.collective, Medium::domain_staged, "one_shot", shape);
    }
    if (selection.staged == nullptr) {
      selection.staged = facts.collective == Collective::all_reduce
                             ? row(facts.collective, Medium::domain_staged, "two_shot", shape)
                             : any_row(facts.collective, Medium::domain_staged, shape);
      if (bytes > kOfferBytes)
        selection.registered = any_row(facts.collective, Medium::domain_registered, shape);
    }
    if (selection.staged != nullptr) return selection;
  }
  selection.links = row(facts.collective, Medium::links,
                        preferred_over_links(facts.collective, bytes, capabilities.world), shape);
  if (selection.links == nullptr) selection.links = any_row(facts.collective, Medium::links, shape);
  if (selection.links == nullptr) {
    return Status(ErrorCode::internal, "no algorithm for " + std::string(name_of(facts.collective)));
  }
  return selection;
}

}  // namespace lockstep::internal
