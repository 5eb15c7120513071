// Between steps: uneven inputs, weights, buffers.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "collectives/communicator_core.hpp"
#include "ddp/bucket_plan.hpp"
#include "ddp/reducer_state.hpp"
#include "ddp/sample_weight.hpp"

namespace lockstep {

void Reducer::State::require_between_steps(const char* call) const {
  if (!step.marked && !step.opened && pauses == 0) return;
  throw Error(ErrorCode::invalid_argument,
              std::string(call) + " was called in the midst of " + step.name() + "; call wait() first");
}

bool Reducer::State::begin_step(std::uint64_t samples) {
  require_between_steps("begin_step");
  wait_gradients();
  const auto all = closing.gather_words({&samples, 1});
  const auto without = static_cast<std::size_t>(std::count(all.begin(), all.end(), std::uint64_t{0}));
  if (without == all.size() || (without > 0 && options.uneven == UnevenInputs::stop)) return false;
  step.opened = true;
  if (options.weighted) weigh(all);
  if (samples == 0) {
    step.shadowing = true;
    if (!options.check_first) start_all_buckets();
  }
  return true;
}

void Reducer::State::weigh(std::span<const std::uint64_t> samples) {
  const internal::SampleWeight weight = internal::weight_of(samples, communicator.rank(), options.average);
  step.average = weight.average;
  step.factor = weight.factor;
}

void Reducer::State::broadcast(std::span<const Parameter> tensors, int root) {
  require_between_steps("broadcast");
  std::vector<std::byte> packed;
  const auto fail = [&](const std::string& why) {
    const internal::Status status(
        ErrorCode::invalid_argument,
        "Reducer::broadcast on rank " + std::to_string(communicator.rank()) + ": " + why,
        communicator.rank());
    communicator.core().engine().request_revoke(status);  // The peers are on their way into the broadcast.
    status.throw_if_error();
  };
  std::vector<std::size_t> sizes;
  for (const Parameter& tensor : tensors) {
    auto count = internal::element_count(tensor);
    if (!count.ok()) fail(count.status().message());
    if (*count > 0 && tensor.value == nullptr) fail(internal::describe(tensor) + " has a null value");
    sizes.push_back(*count * size_of(tensor.type));
  }
  packed.resize(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
  std::byte* next = packed.data();
  for (std::size_t i = 0; i < sizes.size(); next += sizes[i++]) {
    if (sizes[i] > 0) std::memcpy(next, tensors[i].value, sizes[i]);
  }
  communicator.broadcast(packed.data(), packed.size(), DataType::u8, root);
  next = packed.data();
  for (std::size_t i = 0; i < sizes.size(); next += sizes[i++]) {
    if (sizes[i] > 0) std::memcpy(tensors[i].value, next, sizes[i]);
  }
}

std::vector<GradientSpan> Reducer::State::gradients() const {
  std::vector<GradientSpan> all;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!frozen[i]) all.push_back({parameters[i].type, gradient(i), elements(i)});
  }
  return all;
}

}  // namespace lockstep
