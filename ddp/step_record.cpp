#include "ddp/step_record.hpp"

#include <algorithm>

namespace lockstep::internal {
namespace {

/// A message that names every parameter of a large model helps nobody.
constexpr std::size_t kMaxNamesInMessage = 8;

/// `"fc1.bias" (3)`
std::string quote(std::span<const Parameter> parameters, std::size_t index) {
  return '"' + parameters[index].name + "\" (" + std::to_string(index) + ")";
}

std::string list_of(const std::vector<std::size_t>& indices, std::span<const Parameter> parameters) {
  std::string text;
  for (std::size_t k = 0; k < indices.size() && k < kMaxNamesInMessage; ++k) {
    text += (k > 0 ? ", " : "") + quote(parameters, indices[k]);
  }
  return indices.size() > kMaxNamesInMessage ? text + ", ..." : text;
}

/// "rank 1 did not mark 2 of 4 gradients: "a" (0), "b" (1); rank 3 ..."
std::string describe_missing(std::span<const std::vector<std::size_t>> missing,
                             std::span<const Parameter> parameters) {
  std::string text;
  for (std::size_t r = 0; r < missing.size(); ++r) {
    if (missing[r].empty()) continue;
    text += (text.empty() ? "rank " : "; rank ") + std::to_string(r) + " did not mark " +
            std::to_string(missing[r].size()) + " of " + std::to_string(parameters.size()) +
            " gradients: " + list_of(missing[r], parameters);
  }
  return text;
}

}  // namespace

void TroubleNote::set(Trouble trouble, std::size_t parameter) noexcept {
  std::uint64_t none = 0;
  packed_.compare_exchange_strong(none, static_cast<std::uint64_t>(trouble) << 32 | parameter,
                                  std::memory_order_relaxed);
}

void TroubleNote::write_to(StepRecord& record) const noexcept {
  const std::uint64_t packed = packed_.load(std::memory_order_relaxed);
  record.trouble = static_cast<Trouble>(packed >> 32);
  record.parameter = static_cast<std::uint32_t>(packed);
}

std::string describe(const StepRecord& record, std::span<const Parameter> parameters) {
  if (record.trouble == Trouble::wrong_result) {
    return "got " + std::to_string(record.values) + " elements from its hook for bucket " +
           std::to_string(record.parameter);
  }
  const std::string name = quote(parameters, record.parameter);
  switch (record.trouble) {
    case Trouble::marked_twice:
      return "marked " + name + " once too often";
    case Trouble::not_marked:
      return "did not mark " + name;
    case Trouble::not_in_graph:
      return "marked " + name + ", which it did not in the first step";
    case Trouble::not_finite:
      return "has an infinity or a NaN in the gradient of " + name;
    case Trouble::wrong_result:
    case Trouble::none:
      break;
  }
  return "is well";
}

std::string advice(Trouble trouble) {
  switch (trouble) {
    case Trouble::marked_twice:
      return "mark a gradient once, when it is complete, and wait() between steps; if the model uses a "
             "parameter several times, static_graph counts the marks of the first step, and others have as "
             "many";
    case Trouble::not_marked:
      return "mark every gradient before wait(), on all ranks, or let find_unused take those as zero that "
             "backward did not reach; with static_graph mark each as often as in the first step";
    case Trouble::not_in_graph:
      return "leave static_graph off for a model whose graph changes";
    case Trouble::not_finite:
      return "leave this step out; a lower loss scale or learning rate avoids it";
    case Trouble::wrong_result:
      return "a hook's result has the type and as many elements as GradientBucket says";
    case Trouble::none:
      break;
  }
  return {};
}

Status judge(std::span<const StepRecord> records, std::span<const std::vector<std::size_t>> missing,
             std::span<const Parameter> parameters) {
  const auto bad = std::find_if(records.begin(), records.end(),
                                [](const StepRecord& r) { return r.trouble != Trouble::none; });
  if (bad == records.end()) return {};
  const auto rank = static_cast<int>(bad - records.begin());
  const std::string what = bad->trouble == Trouble::not_marked
                               ? describe_missing(missing, parameters)
                               : "rank " + std::to_string(rank) + " " + describe(*bad, parameters);
  return Status(ErrorCode::invalid_argument, what + "; " + advice(bad->trouble), rank);
}

}  // namespace lockstep::internal
