// What a Reducer on the host would be given to do what a DeviceReducer does.
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/ddp/device_reducer.hpp"
#include "lockstep/ddp/reducer_options.hpp"

namespace lockstep::internal {

/// The same numbers on the wire; null: as they are. Throws Error(invalid_argument) for what is no
/// compression.
std::shared_ptr<CommunicationHook> host_hook(DeviceCompression compression, std::size_t block);

/// The same plan, rules and hook.
ReducerOptions host_options(const DeviceReducerOptions& options);

}  // namespace lockstep::internal
