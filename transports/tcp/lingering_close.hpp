// Ends TCP connections without losing what was sent over them.
#pragma once

#include "lib/base/env.hpp"
#include "lib/net/fd.hpp"
#include "lib/net/reactor.hpp"
#include "transports/tcp/limits.hpp"

namespace lockstep::internal {

/// Nothing more is sent over `socket`; it is closed once the peer's system has all that was. (A connection
/// that is closed while bytes of the peer's lie unread, or comes upon such bytes later, is reset: Linux then
/// throws away what it has not yet delivered.) Returns at once. What takes longer is the reactor's, for
/// `most` at the utmost; the rest is then the system's affair, as it is where the process ends before.
void close_lingering(Reactor& reactor, Fd socket, Nanos most = to_nanos(kCloseLinger));

}  // namespace lockstep::internal
