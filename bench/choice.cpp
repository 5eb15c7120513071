#include "bench/choice.hpp"

#include <algorithm>
#include <set>

#include "collectives/communicator_core.hpp"
#include "collectives/programs/domain/staging_window.hpp"
#include "collectives/select/names.hpp"
#include "lib/base/core_set.hpp"

namespace lockstep::bench {
namespace {

// The row that was asked for by name, as calls carry it; 0 leaves the choice to the library.
std::uint8_t row_number(const Ground& ground, const Options& options, Collective collective,
                        std::uint64_t bytes) {
  std::string_view name = options.algorithm;
  if (name.empty()) name = internal::environment_rules().name_for(collective, bytes);
  if (name.empty()) return 0;
  const auto number = internal::resolve_algorithm(collective, name, ground.capabilities.domain);
  number.status().throw_if_error();
  return number.value();
}

std::string model_text(const internal::SharedModel& model) {
  return model.source + " (" + internal::hash_text(model.hash) + ")";
}

}  // namespace

Ground ground_of(const Communicator& communicator, const Options& options) {
  const internal::Engine& engine = communicator.core().engine();
  const internal::Transport* transport = engine.transport();
  std::set<std::string_view> hosts;
  for (const internal::Member& member : engine.group().members) hosts.insert(member.host_id);
  return {engine.capabilities(),
          transport != nullptr ? std::string(transport->name()) : "none",
          static_cast<int>(hosts.size()),
          options.threads > 0,
          engine.choices().shared_from_this(),
          model_text(communicator.core().world().model)};
}

bool ranks_pull(const Communicator& communicator, Board& board) {
  internal::Transport* const transport = communicator.core().engine().transport();
  internal::Domain* const domain = transport != nullptr ? transport->domain() : nullptr;
  double blind = domain != nullptr && domain->can_pull() ? 0 : 1;
  board.max({&blind, 1});
  return blind == 0;
}

Ground ground_of(const Options& options) {
  const int world = std::max({options.ranks, options.threads, 1});
  const bool domain = options.transport != "tcp" && world > 1;
  const auto shared = internal::adopt_model(internal::announce_model());
  shared.status().throw_if_error();
  const internal::SharedModel& model = shared.value();
  const auto load = static_cast<std::size_t>(world) > internal::allowed_cores().count()
                        ? internal::Load::crowded
                        : internal::Load::spare;
  return {{world, domain, domain ? internal::inline_bytes(world) : 0},
          world == 1 ? "none"
          : domain   ? "shm"
                     : "tcp",
          1,
          options.threads > 0,
          internal::choice_table(
              model.model,
              {world, load, model.segment_bytes > 0 ? model.segment_bytes : internal::kSegmentBytes}),
          model_text(model)};
}

Choice choose(const Ground& ground, const Options& options, const Operation& operation, DataType type,
              ReduceOp op, std::uint64_t count) {
  Choice choice{&operation, {}, {}};
  const auto collective = internal::find_collective(operation.name);
  if (!collective) return choice;
  choice.shape.collective = *collective;
  choice.shape.world = ground.capabilities.world;
  choice.shape.root = options.root;
  choice.shape.count = count;
  choice.shape.segment = ground.table->ground().segment_bytes / size_of(type);
  choice.shape.streams = ground.table->ground().streams;
  choice.shape.staging = internal::staging_window(choice.shape, size_of(type), internal::kStagingBytes);
  choice.shape.hosts = ground.table->ground().hosts;
  internal::CallFacts facts;
  facts.collective = *collective;
  facts.type = type;
  facts.op = op;
  facts.root = options.root;
  facts.count = count;
  facts.algorithm = row_number(ground, options, *collective, count * size_of(type));
  const auto selection = internal::choose(facts, choice.shape, ground.capabilities, *ground.table);
  selection.status().throw_if_error();
  choice.selection = selection.value();
  return choice;
}

bool are_registered(const Options& options, const Operation& operation, ReduceOp op) {
  return options.registered && !(operation.reduces() && op == ReduceOp::premul_sum);
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
