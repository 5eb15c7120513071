#include "ddp/device/host_options.hpp"

#include <string>

#include "lockstep/ddp/hooks.hpp"
#include "lockstep/error.hpp"

namespace lockstep::internal {

std::shared_ptr<CommunicationHook> host_hook(DeviceCompression compression, std::size_t block) {
  switch (compression) {
    case DeviceCompression::none:
      return nullptr;
    case DeviceCompression::bf16:
      return make_half_hook(DataType::bf16);
    case DeviceCompression::f16:
      return make_half_hook(DataType::f16);
    case DeviceCompression::f8e4m3:
      return make_quantised_hook({DataType::f8e4m3, block, false});
    case DeviceCompression::f8e5m2:
      return make_quantised_hook({DataType::f8e5m2, block, false});
    case DeviceCompression::i8:
      return make_quantised_hook({DataType::i8, block, false});
  }
  throw Error(ErrorCode::invalid_argument, "DeviceReducerOptions::compression is " +
                                               std::to_string(static_cast<int>(compression)) +
                                               ", which has no meaning; choose a DeviceCompression");
}

ReducerOptions host_options(const DeviceReducerOptions& options) {
  // All of them, or it does not compile: an option that is added cannot be forgotten here.
  const auto& [bucket_bytes, first_bucket_bytes, average, weighted, find_unused, static_graph, uneven, undo,
               check_first, check_finite, gradients_moved, check_replicas_every, compression, block] =
      options;
  return {.bucket_bytes = bucket_bytes,
          .first_bucket_bytes = first_bucket_bytes,
          .average = average,
          .weighted = weighted,
          .gradients_moved = gradients_moved,
          .find_unused = find_unused,
          .static_graph = static_graph,
          .uneven = uneven,
          .undo = undo,
          .check_first = check_first,
          .check_finite = check_finite,
          .check_replicas_every = check_replicas_every,
          .hook = host_hook(compression, block)};
}

}  // namespace lockstep::internal
