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
  ReducerOptions host;
  host.bucket_bytes = options.bucket_bytes;
  host.first_bucket_bytes = options.first_bucket_bytes;
  host.average = options.average;
  host.weighted = options.weighted;
  host.find_unused = options.find_unused;
  host.uneven = options.uneven;
  host.static_graph = options.static_graph;
  host.undo = options.undo;
  host.check_first = options.check_first;
  host.check_finite = options.check_finite;
  host.check_replicas_every = options.check_replicas_every;
  host.gradients_moved = options.gradients_moved;
  host.hook = host_hook(options.compression, options.block);
  return host;
}

}  // namespace lockstep::internal
