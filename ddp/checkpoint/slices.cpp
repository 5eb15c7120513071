// Replicated tensors as slices: what each rank writes of them, and reads.
#include <algorithm>

#include "ddp/bucket_plan.hpp"
#include "lockstep/ddp/checkpoint.hpp"

namespace lockstep {

std::vector<TensorSlice> slices_to_load(std::span<const Parameter> tensors) {
  std::vector<TensorSlice> slices;
  for (const Parameter& tensor : tensors) {
    const auto count = internal::element_count(tensor);
    count.status().throw_if_error();
    slices.push_back({tensor.name, tensor.type, tensor.shape, 0, count.value(), tensor.value});
  }
  return slices;
}

std::vector<TensorSlice> slices_to_save(std::span<const Parameter> tensors, const Communicator& communicator,
                                        bool shared) {
  std::vector<TensorSlice> slices = slices_to_load(tensors);
  const auto ranks = static_cast<std::size_t>(shared ? communicator.size() : 1);
  const auto rank = static_cast<std::size_t>(communicator.rank());
  for (TensorSlice& slice : slices) {
    const std::size_t share = (slice.count + ranks - 1) / ranks;
    slice.first = rank < ranks ? std::min(rank * share, slice.count) : slice.count;
    slice.count = rank < ranks ? std::min(share, slice.count - slice.first) : 0;
    slice.data = static_cast<std::byte*>(slice.data) + slice.first * size_of(slice.type);
  }
  return slices;
}

}  // namespace lockstep
