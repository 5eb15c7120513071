// Between steps: uneven inputs, weights, buffers.
#include <numeric>

#include "ddp/bucket_plan.hpp"
#include "ddp/marks.hpp"
#include "ddp/open_step.hpp"
#include "ddp/reducer_state.hpp"
#include "ddp/telling_peers.hpp"
#include "lib/base/hash.hpp"
#include "lib/reduce/copy.hpp"

namespace lockstep {

bool Reducer::State::begin_step(std::uint64_t samples) {
  require_between_steps("begin_step");
  require_usable();
  wait_gradients();
  if (!internal::open_step(step, closing, samples, communicator.rank(), options)) return false;
  if (step.shadowing) internal::end_marks(step, plan, mutex);  // One may be late from the step before.
  if (widening) widening->set_factor(step.factor);
  if (step.shadowing && !checks_first())
    internal::telling_peers(communicator, owner + "::begin_step", [this] { start_all_buckets(); });
  return true;
}

namespace {

/// What all ranks must have alike, before the tensors themselves: lists in other orders may have equal sizes.
std::uint64_t hash_of_list(std::span<const Parameter> tensors) {
  std::uint64_t hash = internal::kFnvOffset;
  for (const Parameter& tensor : tensors) hash = internal::fnv1a(internal::describe(tensor) + "\n", hash);
  return hash;
}

std::vector<std::size_t> sizes_in_list(std::span<const Parameter> tensors) {
  std::vector<std::size_t> sizes;
  for (const Parameter& tensor : tensors) {
    auto count = internal::element_count(tensor);
    count.status().throw_if_error();
    if (*count > 0 && tensor.value == nullptr)
      throw Error(ErrorCode::invalid_argument, internal::describe(tensor) + " has a null value");
    sizes.push_back(*count * size_of(tensor.type));
  }
  return sizes;
}

}  // namespace

void Reducer::State::broadcast(std::span<const Parameter> tensors, int root) {
  require_between_steps("broadcast");
  std::vector<std::byte> packed;
  std::vector<std::size_t> sizes;
  std::uint64_t hash = 0, roots = 0;
  const auto tell = [&](auto action) { internal::telling_peers(communicator, "Reducer::broadcast", action); };
  tell([&] {  // They are on their way into it.
    sizes = sizes_in_list(tensors);
    hash = hash_of_list(tensors);
    packed.resize(std::accumulate(sizes.begin(), sizes.end(), sizeof hash));
    std::byte* next = packed.data();
    internal::copy_bytes(next, &hash, sizeof hash);
    next += sizeof hash;
    for (std::size_t i = 0; i < sizes.size(); next += sizes[i++])
      internal::copy_bytes(next, tensors[i].value, sizes[i]);
  });
  communicator.broadcast(packed.data(), packed.size(), DataType::u8, root);
  const std::byte* next = packed.data();
  internal::copy_bytes(&roots, next, sizeof roots);
  next += sizeof roots;
  tell([&] {
    if (roots != hash)
      throw Error(ErrorCode::mismatch, "its list of tensors is not that of rank " + std::to_string(root) +
                                           "; pass equal ones, in one order");
  });
  for (std::size_t i = 0; i < sizes.size(); next += sizes[i++])
    internal::copy_bytes(tensors[i].value, next, sizes[i]);
}

std::vector<GradientSpan> Reducer::State::gradients() const {
  std::vector<GradientSpan> all;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (!plan.frozen[i]) all.push_back({parameters[i].type, gradient(i), elements(i)});
  }
  return all;
}

}  // namespace lockstep
