#include "ddp/parameter_list.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "ddp/bucket_plan.hpp"
#include "ddp/gradient_math.hpp"
#include "ddp/majority.hpp"
#include "lib/base/element_types.hpp"
#include "lib/bootstrap/wire.hpp"

namespace lockstep::internal {
namespace {

/// Messages, checkpoints and hooks tell parameters apart by their names.
std::string find_shared_name(std::span<const Parameter> parameters) {
  std::unordered_map<std::string_view, std::size_t> first;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto [known, added] = first.emplace(parameters[i].name, i);
    if (added) continue;
    return "parameter " + std::to_string(i) + ", " + describe(parameters[i]) +
           ", has the name of parameter " + std::to_string(known->second) + "; give each a name of its own";
  }
  return {};
}

std::string find_problem(const ReducerOptions& options) {
  if (options.weighted && !options.average) return "weighted gradients are averaged; leave `average` on";
  if (options.weighted && options.hook && options.hook->leaves_gradients_local()) {
    return "hook \"" + options.hook->name() +
           "\" leaves gradients on their rank, where weights mean nothing; leave one of the two out";
  }
  if (options.half_in_f32 && options.hook) return "half_in_f32 is a way of its own; choose it or a hook";
  if (options.overlap_forward && (options.hook || options.half_in_f32)) {
    return std::string("overlap_forward ends the step before all buckets have come, and ") +
           (options.hook ? "a hook is judged when they have; leave one of the two out"
                         : "half_in_f32 rounds them when they have; leave one of the two out");
  }
  return {};
}

std::string find_problem(const Parameter& p, bool gradients_as_views) {
  const std::uint64_t elements = element_count(p).value();
  if (!is_gradient_type(p.type)) return "has a type without gradients; leave it out";
  if (elements > 0 && p.value == nullptr) return "has a null value";
  if (elements > 0 && !gradients_as_views && p.gradient == nullptr)
    return "has a null gradient; set it, or let gradients be views (ShardedOptimizer: ZeroStage::optimizer)";
  // Else what backward puts there would silently stay this rank's own.
  if (gradients_as_views && p.gradient != nullptr) {
    return "has memory for its gradient, which nothing reads while gradients are views; leave it null and "
           "let backward write to gradient(i) (a Reducer with gradients_as_views = false reads it, and a "
           "ShardedOptimizer with ZeroStage::gradients)";
  }
  if (!is_aligned(p.value, p.type)) return "has a value that is not aligned for its type";
  if (!gradients_as_views && !is_aligned(p.gradient, p.type))
    return "has a gradient that is not aligned for its type";
  return {};
}

std::string find_problem(std::span<const Parameter> parameters, const ReducerOptions& options) {
  if (parameters.empty()) return "there are no parameters; pass those that are trained";
  if (std::string problem = find_problem(options); !problem.empty()) return problem;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = parameters[i];
    if (const auto elements = element_count(p); !elements.ok()) return elements.status().message();
    const std::string problem = find_problem(p, options.gradients_as_views);
    if (!problem.empty()) return "parameter " + std::to_string(i) + ", " + describe(p) + ", " + problem;
  }
  return find_shared_name(parameters);
}

/// Index of the first parameter that differs; the shorter length when one list goes on where the other ends.
std::size_t first_difference(const ParameterList& a, const ParameterList& b) {
  const std::size_t shorter = std::min(a.parameters.size(), b.parameters.size());
  std::size_t i = 0;
  while (i < shorter && a.parameters[i] == b.parameters[i]) ++i;
  return i;
}

std::string value_at(const ParameterList& list, std::size_t index) {
  if (index < list.parameters.size()) return list.parameters[index];
  return "only " + std::to_string(list.parameters.size()) + " parameters";
}

Status difference(const std::string& what, std::size_t rank, const std::string& value, std::size_t reference,
                  const std::string& expected, const char* next) {
  return Status(ErrorCode::mismatch,
                what + " on rank " + std::to_string(rank) + ", which has " + value + "; rank " +
                    std::to_string(reference) + " has " + expected + "; " + next,
                static_cast<int>(rank));
}

Status compare_parameters(std::span<const ParameterList> lists, std::size_t reference) {
  const ParameterList& expected = lists[reference];
  std::size_t culprit = reference;
  std::size_t first = 0;
  for (std::size_t r = 0; r < lists.size(); ++r) {
    if (lists[r].parameters == expected.parameters) continue;
    const std::size_t index = first_difference(lists[r], expected);
    if (culprit == reference || index < first) {
      culprit = r;
      first = index;
    }
  }
  if (culprit == reference) return {};
  return difference("parameter " + std::to_string(first) + " differs", culprit,
                    value_at(lists[culprit], first), reference, value_at(expected, first),
                    "build the same model on every rank");
}

/// What all ranks must share, with the defaults left out but for the first four.
std::string describe(const ReducerOptions& o) {
  std::string text = "bucket_bytes " + std::to_string(o.bucket_bytes) + ", first_bucket_bytes " +
                     std::to_string(o.first_bucket_bytes) + (o.average ? ", average" : ", sum") +
                     (o.hook ? ", hook \"" + o.hook->name() + '"' : ", no hook");
  const auto add = [&](bool set, const char* name) {
    if (set) text += std::string(", ") + name;
  };
  add(o.weighted, "weighted");
  add(!o.split_large, "no split_large");
  add(!o.rebuild, "no rebuild");
  add(o.find_unused, "find_unused");
  add(o.static_graph, "static_graph");
  add(o.uneven == UnevenInputs::stop, "uneven inputs stop");
  add(o.half_in_f32, "half_in_f32");
  add(o.overlap_forward, "overlap_forward");
  add(o.check_first.value_or(false), "check_first");
  add(o.check_finite, "check_finite");
  if (o.check_replicas_every > 0) text += ", check_replicas_every " + std::to_string(o.check_replicas_every);
  return text;
}

}  // namespace

ParameterList make_list(std::span<const Parameter> parameters, const ReducerOptions& options) {
  ParameterList list;
  list.problem = find_problem(parameters, options);
  list.options = describe(options);
  for (const Parameter& p : parameters) list.parameters.push_back(describe(p));
  return list;
}

std::string serialise(const ParameterList& list) {
  std::string bytes;
  WireWriter out(bytes);
  out.text(list.problem);
  out.text(list.options);
  for (const std::string& p : list.parameters) out.text(p);
  return bytes;
}

Result<ParameterList> parse(std::string_view bytes) {
  ParameterList list;
  WireReader in(as_bytes(bytes));
  const auto take = [&](std::string& to) {
    std::string_view text;
    if (!in.text(in.left(), text)) return false;
    to = text;
    return true;
  };
  bool whole = take(list.problem) && take(list.options);
  while (whole && in.left() > 0) whole = take(list.parameters.emplace_back());
  if (!whole) return Status(ErrorCode::internal, "a peer's parameter list is cut short");
  return list;
}

Status compare(std::span<const ParameterList> lists, int self) {
  for (std::size_t r = 0; r < lists.size(); ++r) {
    if (lists[r].problem.empty()) continue;
    const int culprit = static_cast<int>(r);
    if (!lists[static_cast<std::size_t>(self)].problem.empty()) {
      return Status(ErrorCode::invalid_argument, lists[static_cast<std::size_t>(self)].problem, self);
    }
    return Status(ErrorCode::refused, "rank " + std::to_string(r) + " cannot start: " + lists[r].problem,
                  culprit);
  }
  const std::size_t reference = majority_rank(lists);
  LOCKSTEP_RETURN_IF_ERROR(compare_parameters(lists, reference));
  for (std::size_t r = 0; r < lists.size(); ++r) {
    if (lists[r].options == lists[reference].options) continue;
    return difference("options differ", r, lists[r].options, reference, lists[reference].options,
                      "give the same options on every rank");
  }
  return {};
}

}  // namespace lockstep::internal
