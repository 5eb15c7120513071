#include "ddp/sharded/settings_check.hpp"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "ddp/bucket_plan.hpp"
#include "ddp/exact.hpp"
#include "ddp/first_to_differ.hpp"
#include "ddp/hook_state.hpp"
#include "ddp/sharded/parameter_shards.hpp"
#include "ddp/telling_peers.hpp"
#include "lib/base/hash.hpp"

namespace lockstep::internal {
namespace {

std::string text_of(const Optimizer& optimizer) {
  return optimizer.name() + ", rate " + exact(optimizer.rate());
}

std::string text_of(const Optimizer* optimizer, const ShardedOptions& options) {
  std::string text = optimizer != nullptr ? text_of(*optimizer) : "no optimizer";
  text += ", stage " + std::to_string(static_cast<int>(options.stage));
  return text + (options.values_as_views ? ", values_as_views" : ", no values_as_views");
}

/// The text of `rank`, on all of them.
std::string broadcast(Communicator& communicator, std::string text, int rank) {
  std::uint64_t length = text.size();
  communicator.broadcast(&length, 1, DataType::u64, rank);
  text.resize(length);
  communicator.broadcast(text.data(), length, DataType::u8, rank);
  return text;
}

void require_one_text(Communicator& communicator, const std::string& text) {
  const int rank = first_to_differ(communicator, fnv1a(text));
  if (rank < 0) return;
  const std::string there = broadcast(communicator, text, rank);
  const std::string first = broadcast(communicator, text, 0);
  throw Error(ErrorCode::mismatch,
              "ShardedOptimizer: rank " + std::to_string(rank) + " has " + there + "; rank 0 has " + first +
                  "; use the same on every rank",
              rank);
}

/// What must be equal of a parameter's optimizer; empty for the usual one.
std::string rule_text(const std::shared_ptr<const Optimizer>& rule,
                      const std::shared_ptr<const Optimizer>& usual) {
  if (rule == usual) return {};
  std::string text = text_of(*rule);
  for (const std::string& slot : rule->slots()) text += ", " + slot;
  return text;
}

/// Some ranks step a parameter by another optimizer than rank 0; `texts` are this rank's, by parameter.
[[noreturn]] void throw_rule_mismatch(Communicator& communicator, std::span<const Parameter> parameters,
                                      const std::vector<std::string>& texts, int rank) {
  std::vector<std::uint64_t> first, own;
  for (const std::string& text : texts) own.push_back(fnv1a(text));
  first = own;
  communicator.broadcast(first.data(), first.size(), DataType::u64, 0);
  auto which =
      static_cast<std::uint64_t>(std::mismatch(own.begin(), own.end(), first.begin()).first - own.begin());
  communicator.broadcast(&which, 1, DataType::u64, rank);
  const auto of_rank = [&](int one) {
    const std::string text = broadcast(communicator, texts[which], one);
    return text.empty() ? std::string("the constructor's optimizer") : text;
  };
  const std::string there = of_rank(rank), at_first = of_rank(0);
  throw Error(ErrorCode::mismatch,
              "ShardedOptimizer: " + describe(parameters[which]) + " is stepped by " + there + " on rank " +
                  std::to_string(rank) + ", by " + at_first + " on rank 0; use the same on every rank",
              rank);
}

/// Of the first parameter whose optimizer keeps something else; empty when there is none.
std::string find_other_slots(std::span<const Parameter> parameters, const Rules& rules,
                             const Optimizer& usual) {
  for (std::size_t i = 0; i < rules.size(); ++i) {
    if (rules[i]->slots() == usual.slots()) continue;
    return "the optimizer of " + describe(parameters[i]) + ", " + rules[i]->name() +
           ", keeps other slots than " + usual.name() + "; use one kind with other settings";
  }
  return {};
}

void check_types(std::span<const Parameter> parameters) {
  for (const Parameter& parameter : parameters) {
    const DataType type = parameter.type;
    if (type == DataType::f32 || type == DataType::f16 || type == DataType::bf16) continue;
    throw Error(ErrorCode::not_supported,
                "ShardedOptimizer: " + describe(parameter) +
                    " is not f32, bf16 or f16; shard those, and use a Reducer for others");
  }
}

/// Each shard would follow the gradients of its own rank.
void check_hook(const ShardedOptions& options) {
  if (!options.hook || !options.hook->leaves_gradients_local()) return;
  throw Error(ErrorCode::not_supported, "ShardedOptimizer: hook \"" + options.hook->name() +
                                            "\" leaves gradients on their rank; use it with a Reducer");
}

/// What two parameters' tensors of one name would be in a checkpoint; empty when there are none. `kept`: what
/// is kept of each.
std::string find_shared_name(std::span<const Parameter> before, std::span<const Parameter> added,
                             const std::vector<std::string>& kept) {
  std::unordered_map<std::string, const Parameter*> names;
  for (const auto& list : {before, added}) {
    for (const Parameter& parameter : list) names.emplace(parameter.name, &parameter);
  }
  for (const auto& list : {before, added}) {
    for (const Parameter& parameter : list) {
      for (const std::string& what : kept) {
        const auto [other, is_new] = names.emplace(kept_name(parameter, what), &parameter);
        if (is_new) continue;
        return "checkpoints would have two tensors \"" + other->first + "\": what is kept of " +
               describe(parameter) + ", and that of " + describe(*other->second) + "; rename one of them";
      }
    }
  }
  return {};
}

}  // namespace

void check_settings(Communicator& communicator, const Optimizer* optimizer, const ShardedOptions& options) {
  std::string text;
  telling_peers(communicator, "ShardedOptimizer", [&] { text = text_of(optimizer, options); });
  require_one_text(communicator, text);
  if (optimizer == nullptr)
    throw Error(ErrorCode::invalid_argument, "ShardedOptimizer: the optimizer is null; pass an AdamW, say");
  if (options.stage == ZeroStage::optimizer || options.stage == ZeroStage::gradients) return;
  throw Error(ErrorCode::invalid_argument, "ShardedOptimizer: there is no stage " +
                                               std::to_string(static_cast<int>(options.stage)) +
                                               "; choose ZeroStage::optimizer or ZeroStage::gradients");
}

void check_shardable(Communicator& communicator, std::span<const Parameter> before,
                     std::span<const Parameter> added, const Optimizer& optimizer,
                     const ShardedOptions& options) {
  check_types(added);
  check_hook(options);
  std::string problem;
  telling_peers(communicator, "ShardedOptimizer",
                [&] { problem = find_shared_name(before, added, all_kept(optimizer)); });
  if (!problem.empty()) throw Error(ErrorCode::invalid_argument, "ShardedOptimizer: " + problem);
}

Rules rules_for(Communicator& communicator, std::span<const Parameter> parameters,
                const std::shared_ptr<const Optimizer>& usual, const ShardedOptions& options) {
  Rules rules;
  std::vector<std::string> texts;
  std::string all, problem;
  telling_peers(communicator, "ShardedOptimizer", [&] {
    rules.assign(parameters.size(), usual);
    texts.resize(parameters.size());
    for (std::size_t i = 0; i < parameters.size() && options.optimizer_of; ++i) {
      if (auto rule = options.optimizer_of(parameters[i])) rules[i] = std::move(rule);
      texts[i] = rule_text(rules[i], usual);
    }
    for (const std::string& text : texts) all += text + "\n";
    problem = find_other_slots(parameters, rules, *usual);
  });
  if (const int rank = first_to_differ(communicator, fnv1a(all)); rank >= 0)
    throw_rule_mismatch(communicator, parameters, texts, rank);
  if (!problem.empty()) throw Error(ErrorCode::invalid_argument, "ShardedOptimizer: " + problem);
  return rules;
}

}  // namespace lockstep::internal
