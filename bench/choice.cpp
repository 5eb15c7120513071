#include "bench/choice.hpp"

#include <algorithm>
#include <optional>

#include "collectives/communicator_core.hpp"
#include "lib/base/config.hpp"

namespace lockstep::bench {
namespace {

using internal::Medium;

std::optional<Collective> collective_of(const Operation& operation) {
  for (int i = 0; i < kCollectiveCount; ++i) {
    if (name_of(static_cast<Collective>(i)) == operation.name) return static_cast<Collective>(i);
  }
  return std::nullopt;
}

// The number of the row for a name, as calls carry it: its position in the table, from 1.
std::uint8_t row_number(Collective collective, const std::string& name) {
  internal::Status unknown;
  for (Medium medium : {Medium::links, Medium::domain_staged, Medium::domain_registered}) {
    const auto found = find_algorithm(collective, medium, name);
    if (found.ok()) return static_cast<std::uint8_t>(found.value() - internal::algorithms().data() + 1);
    if (unknown.ok()) unknown = found.status();
  }
  unknown.throw_if_error();
  return 0;
}

}  // namespace

Ground ground_of(const Communicator& communicator, const Options& options) {
  const internal::Engine& engine = communicator.core().engine();
  const internal::Transport* transport = engine.transport();
  return {engine.capabilities(), transport != nullptr ? std::string(transport->name()) : "none",
          options.threads > 0};
}

Ground ground_of(const Options& options) {
  const int world = std::max({options.ranks, options.threads, 1});
  const bool domain = options.transport != "tcp" && world > 1;
  return {{world, domain, domain && world <= internal::kMaxInlineMembers},
          world == 1 ? "none"
          : domain   ? "shm"
                     : "tcp",
          options.threads > 0};
}

Choice choose(const Ground& ground, const Options& options, const Operation& operation, DataType type,
              ReduceOp op, std::uint64_t count) {
  Choice choice{&operation, {}, {}};
  const auto collective = collective_of(operation);
  if (!collective) return choice;
  choice.shape.collective = *collective;
  choice.shape.world = ground.capabilities.world;
  choice.shape.root = options.root;
  choice.shape.count = count;
  choice.shape.segment = internal::config_bytes("LOCKSTEP_SEGMENT") / size_of(type);
  choice.shape.staging = internal::kStagingBytes / 2 / size_of(type);
  internal::CallFacts facts;
  facts.collective = *collective;
  facts.type = type;
  facts.op = op;
  facts.root = options.root;
  facts.count = count;
  if (!options.algorithm.empty()) facts.algorithm = row_number(*collective, options.algorithm);
  const auto selection = internal::choose(facts, choice.shape, ground.capabilities);
  selection.status().throw_if_error();
  choice.selection = selection.value();
  return choice;
}

std::string algorithm_name(const Ground& ground, const Choice& choice, bool registered) {
  const internal::Selection& selection = choice.selection;
  if (choice.operation->source == Source::predecessor) return "point_to_point";
  if (ground.capabilities.world == 1) return "local";
  if (selection.inline_line) return "inline";
  if (selection.links != nullptr) return std::string(selection.links->name);
  const bool addressable = registered || ground.threads || selection.staged == nullptr;
  const internal::Algorithm* row =
      selection.registered != nullptr && addressable ? selection.registered : selection.staged;
  return std::string(row->name);
}

}  // namespace lockstep::bench
