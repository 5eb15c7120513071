// The sentences in which a failed handshake is told to the user, one for each status and side.
#pragma once

#include <string_view>

#include "lib/base/status.hpp"
#include "lib/bootstrap/handshake.hpp"

namespace lockstep::internal {

/// What the sentences need to know of the serving side.
struct HandshakeFacts {
  std::uint16_t server_version = 0;
  std::int32_t server_rank = -1;
  std::int32_t server_world = 0;
};

/// For the user of the process that connected.
Status explain_to_client(HandshakeStatus status, const HandshakeHello& hello, const HandshakeFacts& facts,
                         std::string_view job_id, std::string_view server);
/// For the user of the process that was connected to.
Status explain_to_server(HandshakeStatus status, const HandshakeHello& hello, const HandshakeFacts& facts,
                         std::string_view job_id, std::string_view client);

}  // namespace lockstep::internal
