// What UCX is told beside its own variables.
#pragma once

#include "transports/ucx/ucx_library.hpp"

namespace lockstep::internal {

/// Over TCP UCX connects where an endpoint is made, and would wait there, a minute and longer, for a host
/// that has vanished: whoever first called it to say that the end had come heard nothing itself meanwhile.
/// The user's UCX_TCP_CONN_NB goes before.
void connect_in_the_background(const UcxLibrary& ucx, ucp_config_t* config);

}  // namespace lockstep::internal
