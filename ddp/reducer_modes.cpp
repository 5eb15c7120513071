// Between steps: uneven inputs, weights, buffers.
#include <numeric>

#include "collectives/communicator_core.hpp"
#include "ddp/bucket_plan.hpp"
#include "ddp/open_step.hpp"
#include "ddp/reducer_state.hpp"
#include "ddp/telling_peers.hpp"
#include "lib/reduce/copy.hpp"

namespace lockstep {

bool Reducer::State::begin_step(std::uint64_t samples) {
  require_between_steps("begin_step");
  plan.require_whole();
  wait_gradients();
  if (!internal::open_step(step, closing, samples, communicator.rank(), options)) return false;
  if (widening) widening->set_factor(step.factor);
  if (step.shadowing && !checks_first())
    internal::telling_peers(communicator, owner + "::begin_step", [this] { start_all_buckets(); });
  return true;
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
    internal::copy_bytes(next, tensors[i].value, sizes[i]);
  }
  communicator.broadcast(packed.data(), packed.size(), DataType::u8, root);
  next = packed.data();
  for (std::size_t i = 0; i < sizes.size(); next += sizes[i++]) {
    internal::copy_bytes(tensors[i].value, next, sizes[i]);
  }
}

std::vector<GradientSpan> Reducer::State::gradients() const {
  std::vector<GradientSpan> all;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!plan.frozen[i]) all.push_back({parameters[i].type, gradient(i), elements(i)});
  }
  return all;
}

}  // namespace lockstep
