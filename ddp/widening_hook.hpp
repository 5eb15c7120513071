// f16 and bf16 buckets, added up in f32 on the whole way (ReducerOptions::half_in_f32).
#pragma once

#include <memory>

#include "lockstep/ddp/communication_hook.hpp"

namespace lockstep::internal {

/// Each gradient is rounded once, whatever the number of ranks and the way of the messages. Twice the bytes.
/// Buckets of other types travel as they are.
std::shared_ptr<CommunicationHook> make_widening_hook();

}  // namespace lockstep::internal
