// What the trainer of a Round is made of: its hook, and a ShardedOptimizer's options.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>

#include "lockstep/ddp/hooks.hpp"
#include "lockstep/ddp/sharded_optimizer.hpp"
#include "tests/ddp/fault_round.hpp"

namespace lockstep {

struct HookThrew : std::runtime_error {
  HookThrew() : std::runtime_error("as the round has it") {}
};

/// `errs_now` tells whether the round has this rank err so at this moment. Null: the round has no hook.
inline std::shared_ptr<CommunicationHook> hook_of(const Round& round, std::function<bool(Fault)> errs_now) {
  if (round.hook.empty()) return nullptr;
  if (round.hook == "top_k") return make_top_k_hook({.share = 1});
  if (round.hook == "powersgd")
    return make_power_sgd_hook({.rank = 2, .start_step = 2, .min_compression = 1});
  if (round.hook != "all_reduce") return hook_by_name(round.hook);
  return make_hook("all_reduce", [errs_now = std::move(errs_now)](Communicator& c, const GradientBucket& b) {
    if (b.index == 0 && errs_now(Fault::hook_threw)) throw HookThrew();
    const std::size_t surplus = b.index == 0 && errs_now(Fault::wrong_result) ? 1 : 0;
    return HookResult{c.all_reduce_async(b.data, b.data, b.count, b.type, b.op()), b.data, b.count + surplus};
  });
}

inline ShardedOptions sharded_options_of(const Round& round, std::shared_ptr<CommunicationHook> hook) {
  const ReducerOptions& o = round.options;
  return {.bucket_bytes = o.bucket_bytes,
          .first_bucket_bytes = o.first_bucket_bytes,
          .stage = static_cast<ZeroStage>(round.zero),
          .average = o.average,
          .weighted = o.weighted,
          .find_unused = o.find_unused,
          .check_first = o.check_first.value_or(false),
          .check_finite = o.check_finite,
          .hook = std::move(hook)};
}

}  // namespace lockstep
