#include "lib/bootstrap/handshake_text.hpp"

namespace lockstep::internal {
namespace {

std::string_view service_name(HandshakeService service) {
  switch (service) {
    case HandshakeService::store:
      return "the job's store";
    case HandshakeService::watch:
      return "the watch over ranks";
    case HandshakeService::link:
      return "a data connection";
    case HandshakeService::knock:
      return "to be connected to";
    case HandshakeService::probe:
      return "to know that this rank can be reached";
  }
  return "a service that is not known here";
}

/// The cause and the next step, the same for both sides.
std::string reason(HandshakeStatus status, const HandshakeHello& hello, const HandshakeFacts& facts,
                   std::string_view job_id) {
  const std::string rank = std::to_string(hello.rank);
  const std::string world = std::to_string(hello.world);
  switch (status) {
    case HandshakeStatus::ok:
      return "ok";
    case HandshakeStatus::malformed:
      return "it does not speak lockstep's protocol; is the port another program's?";
    case HandshakeStatus::wrong_version:
      return "protocol version differs (the server speaks " + std::to_string(facts.server_version) +
             "); run the same lockstep version on all ranks";
    case HandshakeStatus::wrong_byte_order:
      return "byte order of the machines differs; all ranks must run on machines of one byte order";
    case HandshakeStatus::wrong_job:
      return "wrong job (this side's job is \"" + std::string(job_id) +
             "\"); check LOCKSTEP_JOB_ID and that no other job uses this address";
    case HandshakeStatus::wrong_secret:
      return "wrong secret; LOCKSTEP_SECRET or LOCKSTEP_SECRET_FILE must hold the same secret on all ranks";
    case HandshakeStatus::wrong_service:
      return "that port does not offer " + std::string(service_name(hello.service)) +
             "; check that the address is the one that was published";
    case HandshakeStatus::wrong_peer:
      return "rank " + std::to_string(hello.peer) + " was wanted but rank " +
             std::to_string(facts.server_rank) +
             " is listening there; several hosts may have the same private address, set LOCKSTEP_IFNAME";
    case HandshakeStatus::wrong_world:
      return "world size differs (rank " + rank + " was started with " + world + ", the other side with " +
             std::to_string(facts.server_world) + "); start all ranks with the same world size";
    case HandshakeStatus::bad_rank:
      return "rank " + rank + " is out of range for world size " +
             std::to_string(facts.server_world > 0 ? facts.server_world : hello.world) +
             "; ranks count from 0 to world size - 1";
    case HandshakeStatus::duplicate_rank:
      return "rank " + rank + " is already taken by another process; give every process its own rank";
  }
  return "refused for a reason that this version does not know; run the same lockstep version on all ranks";
}

ErrorCode code_of(HandshakeStatus status) {
  switch (status) {
    case HandshakeStatus::wrong_world:
    case HandshakeStatus::bad_rank:
    case HandshakeStatus::duplicate_rank:
      return ErrorCode::configuration;
    default:
      return ErrorCode::unauthorized;
  }
}

}  // namespace

Status explain_to_client(HandshakeStatus status, const HandshakeHello& hello, const HandshakeFacts& facts,
                         std::string_view job_id, std::string_view server) {
  return Status(code_of(status), "rank " + std::to_string(hello.rank) + " was not accepted by " +
                                     std::string(server) + ": " + reason(status, hello, facts, job_id));
}

Status explain_to_server(HandshakeStatus status, const HandshakeHello& hello, const HandshakeFacts& facts,
                         std::string_view job_id, std::string_view client) {
  std::string who = "a connection from " + std::string(client);
  if (hello.rank >= 0) who += " that calls itself rank " + std::to_string(hello.rank);
  return Status(code_of(status), who + " was refused: " + reason(status, hello, facts, job_id), hello.rank);
}

}  // namespace lockstep::internal
