#include "collectives/select/choose.hpp"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "collectives/programs/blocks.hpp"
#include "collectives/programs/hosts/host_layout.hpp"
#include "collectives/select/names.hpp"

namespace lockstep::internal {
namespace {

const Algorithm* row(Collective collective, Medium medium, std::string_view name, const Shape& shape) {
  const auto found = find_algorithm(collective, medium, name);
  return found.ok() && found.value()->supports(shape) ? found.value() : nullptr;
}

/// The best of a medium for this call, or none. The table knows sizes by powers of two, so what it prefers
/// may not take this one.
const Algorithm* best_row(ChoiceTable& table, Collective collective, Medium medium, std::uint64_t bytes,
                          const Shape& shape) {
  for (const Algorithm* algorithm : table.ranking(collective, medium, bytes)) {
    if (algorithm->supports(shape)) return algorithm;
  }
  return nullptr;
}

/// Where the network is not known: up to here all_reduce goes through the hosts' leaders, in few messages.
/// Between two hosts that is the ring's traffic in fewer steps; between more it is more traffic (4 hosts with
/// 2 ranks each, 64 KiB: 1.3 times the ring's time at 1 Gbit/s, 0.6 times without a limit).
std::uint64_t leaders_bytes(const Shape& shape) {
  constexpr std::uint64_t kTwoHosts = 64 << 10, kMoreHosts = 32 << 10;
  return *std::max_element(shape.hosts.begin(), shape.hosts.end()) == 1 ? kTwoHosts : kMoreHosts;
}

/// Up to here a host's blocks travel together: what is saved is messages, which larger blocks do not feel.
constexpr std::uint64_t kTogetherBytes = 4096;

/// From here on all_reduce among hosts of one rank each goes round a ring: it has always something on the
/// wire, where rabenseifner's steps wait for each other (4 hosts at 1 Gbit/s: equal at 1 MiB, 0.84 at 4 MiB).
constexpr std::uint64_t kRingBytes = 4 << 20;

/// Less is not tried to be pulled: to ask the kernel, and to hear that all are there, takes longer than
/// another copy.
constexpr std::uint64_t kSmallestPulled = 16 << 10;

bool saves_messages_alone(Collective collective) {
  return collective == Collective::scatter || collective == Collective::gather ||
         collective == Collective::all_to_all;
}

/// Whether the table's prices are those of the network between the hosts, for such a call.
bool knows_network(const ChoiceTable& table, Collective collective, std::uint64_t bytes) {
  return table.ground().network.known() && table.ground().world <= kWalkedRanks &&
         collective == Collective::all_reduce && bytes < kRingBytes;
}

/// Where ranks share hosts, the network between them is what costs: the programs that spare it. The table has
/// their price, too, but where the network was not measured TCP's is the loopback's, which makes too little
/// of it: between hosts at 1 Gbit/s its choice for 32 KiB took 3.5 times the best.
const Algorithm* between_hosts(const ChoiceTable& table, Collective collective, std::uint64_t bytes,
                               const Shape& shape) {
  if (shape.hosts.empty() || knows_network(table, collective, bytes)) return nullptr;
  const bool large_sum = collective == Collective::all_reduce && bytes >= kRingBytes;
  if (large_sum && !has_shared_hosts(shape)) return row(collective, Medium::links, "ring", shape);
  if (saves_messages_alone(collective) && bytes > kTogetherBytes) return nullptr;
  const bool small_sum = collective == Collective::all_reduce && bytes <= leaders_bytes(shape);
  return row(collective, Medium::links, small_sum ? "leaders" : "hierarchical", shape);
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
  } else if (algorithm.medium == Medium::domain_pulled) {  // Which registered memory can be, too.
    selection.registered = selection.pulled = &algorithm;
    selection.pull_untried = true;
  } else {
    selection.staged = &algorithm;
    selection.registered = row(algorithm.collective, Medium::domain_registered, algorithm.name, shape);
  }
  return selection;
}

/// Whether a rule of the environment names it for such a call, too.
bool is_of_environment(const CallFacts& facts, std::uint64_t bytes, bool domain) {
  if (environment_rules().empty()) return false;
  const std::string_view name = environment_rules().name_for(facts.collective, bytes);
  if (name.empty()) return false;
  auto number = resolve_algorithm(facts.collective, name, domain);
  return number.ok() && *number == facts.algorithm;
}

/// What the model's overrides say for a call, where it can be done.
const Algorithm* overridden(const AlgorithmRules& rules, Collective collective, std::uint64_t bytes,
                            const Shape& shape, bool domain) {
  if (rules.empty()) return nullptr;
  const std::string_view name = rules.name_for(collective, bytes);
  if (name.empty()) return nullptr;
  auto number = resolve_algorithm(collective, name, domain);
  if (!number.ok()) return nullptr;
  const Algorithm& algorithm = algorithms()[*number - 1u];
  const bool possible = domain || algorithm.medium == Medium::links;
  return possible && algorithm.supports(shape) ? &algorithm : nullptr;
}

}  // namespace

std::uint64_t call_bytes(const CallFacts& facts, std::span<const std::uint64_t> counts) {
  const bool known_to_all =
      facts.collective == Collective::all_gather_v || facts.collective == Collective::reduce_scatter_v;
  if (!known_to_all || counts.empty()) return facts.count * size_of(facts.type);
  const auto total = std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
  return total / counts.size() * size_of(facts.type);
}

Result<Selection> choose(const CallFacts& facts, const Shape& shape, const Capabilities& capabilities,
                         ChoiceTable& table) {
  const std::uint64_t bytes = call_bytes(facts, shape.counts);
  if (facts.algorithm > 0) {
    auto selection = forced(algorithms()[facts.algorithm - 1u], shape, capabilities);
    const bool of_environment = !selection.ok() && is_of_environment(facts, bytes, capabilities.domain);
    return of_environment ? rule_cannot_run(selection.status()) : std::move(selection);
  }
  if (const Algorithm* algorithm =
          overridden(table.model().rules, facts.collective, bytes, shape, capabilities.domain)) {
    auto selection = forced(*algorithm, shape, capabilities);
    // It cannot be followed where a rank's buffers are private or cannot be read, which only the ranks'
    // offers show.
    if (selection.ok() && selection->registered == algorithm)
      selection->staged = best_row(table, facts.collective, Medium::domain_staged, bytes, shape);
    return selection;
  }
  Selection selection;
  if (capabilities.domain) {
    const bool fits_lines =
        facts.collective == Collective::barrier ||
        (facts.collective == Collective::all_reduce && bytes <= capabilities.inline_bytes);
    if (fits_lines && capabilities.inline_bytes > 0) {
      selection.inline_line = true;
      return selection;
    }
    selection.staged = best_row(table, facts.collective, Medium::domain_staged, bytes, shape);
    if (selection.staged != nullptr && bytes >= kSmallestPulled)
      selection.pulled = row(facts.collective, Medium::domain_pulled, "direct", shape);
    if (selection.staged != nullptr && table.offers_pay(facts.collective, bytes))
      selection.registered = best_row(table, facts.collective, Medium::domain_registered, bytes, shape);
    if (selection.staged != nullptr) return selection;
  }
  selection.links = between_hosts(table, facts.collective, bytes, shape);
  if (selection.links == nullptr)
    selection.links = best_row(table, facts.collective, Medium::links, bytes, shape);
  if (selection.links == nullptr) {
    return Status(ErrorCode::internal, "no algorithm for " + std::string(name_of(facts.collective)));
  }
  return selection;
}

Status refuse_buffers(const Algorithm& named, ReduceOp op, std::string_view needs) {
  const std::string algorithm = "algorithm " + std::string(named.name);
  if (op == ReduceOp::premul_sum && is_reduction(named.collective))
    return Status(ErrorCode::not_supported,
                  algorithm +
                      " has ranks read each other's inputs where they lie, but premul_sum scales each first; "
                      "leave the choice to the library");
  return Status(ErrorCode::not_supported, algorithm + " needs " + std::string(needs));
}

}  // namespace lockstep::internal
