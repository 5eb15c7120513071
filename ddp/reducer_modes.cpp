// Between steps: uneven inputs, weights, buffers.
#include <numeric>

#include "ddp/bucket_plan.hpp"
#include "ddp/open_step.hpp"
#include "ddp/reducer_state.hpp"
#include "ddp/telling_peers.hpp"
#include "lib/reduce/copy.hpp"

namespace lockstep {

bool Reducer::State::begin_step(std::uint64_t samples) {
  require_between_steps("begin_step");
  require_usable();
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
  std::vector<std::size_t> sizes;
  std::byte* next = nullptr;
  internal::telling_peers(communicator, "Reducer::broadcast", [&] {  // They are on their way into it.
    for (const Parameter& tensor : tensors) {
      auto count = internal::element_count(tensor);
      count.status().throw_if_error();
      if (*count > 0 && tensor.value == nullptr)
        throw Error(ErrorCode::invalid_argument, internal::describe(tensor) + " has a null value");
      sizes.push_back(*count * size_of(tensor.type));
    }
    packed.resize(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}));
    next = packed.data();
    for (std::size_t i = 0; i < sizes.size(); next += sizes[i++]) {
      internal::copy_bytes(next, tensors[i].value, sizes[i]);
    }
  });
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
