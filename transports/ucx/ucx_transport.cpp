#include "transports/ucx/ucx_transport.hpp"

#include <string>

#include "lib/base/config.hpp"
#include "lib/bootstrap/exchange.hpp"
#include "transports/fabric/fabric_transport.hpp"
#include "transports/ucx/ucx_options.hpp"
#include "transports/ucx/ucx_worker.hpp"

namespace lockstep::internal {

namespace {

// Within a host UCX would have to leave its shared memory aside to watch a peer.
bool is_watched(const Session& session, int world_rank) {
  const std::string wanted = config_text("LOCKSTEP_UCX_FAILURES");
  if (wanted != "auto") return wanted == "peer";
  const auto& members = session.members();
  return members[static_cast<std::size_t>(world_rank)].host_id !=
         members[static_cast<std::size_t>(session.rank())].host_id;
}

// UCX is told, not left to find out: it knows only of allocations made since it was loaded.
ucs_memory_type_t ucx_memory(PayloadMemory payloads) {
  switch (payloads) {
    case PayloadMemory::cuda:
      return UCS_MEMORY_TYPE_CUDA;
    case PayloadMemory::host_device:
      return UCS_MEMORY_TYPE_HOST;
    case PayloadMemory::host:
      break;
  }
  return UCS_MEMORY_TYPE_UNKNOWN;
}

}  // namespace

Result<std::shared_ptr<UcxContext>> open_ucx(int world) {
  const auto library = ucx_library();
  if (!library.ok()) return library.status();
  const UcxLibrary& ucx = *library.value();
  ucp_config_t* config = nullptr;
  if (const auto status = ucx.config_read(nullptr, nullptr, &config); status != UCS_OK) {
    return ucx_error(ucx, "read its configuration; see the UCX_ variables", status);
  }
  connect_in_the_background(ucx, config);
  ucp_params_t params{};
  params.field_mask =
      UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_RMA | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;  // One context, one worker for each communicator.
  params.estimated_num_eps = static_cast<std::size_t>(world);
  ucp_context_h context = nullptr;
  const auto status = ucx.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context);
  ucx.config_release(config);
  if (status != UCS_OK) return ucx_error(ucx, "start; see the UCX_ variables", status);
  return std::make_shared<UcxContext>(ucx, context);
}

bool ucx_moves(const UcxContext& context, PayloadMemory payloads) {
  ucp_context_attr_t attributes{};
  attributes.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES;
  if (context.ucx.context_query(context.handle, &attributes) != UCS_OK) return false;
  const ucs_memory_type_t wanted =
      payloads == PayloadMemory::cuda ? UCS_MEMORY_TYPE_CUDA : UCS_MEMORY_TYPE_HOST;
  return (attributes.memory_types & UCS_BIT(wanted)) != 0;
}

Result<std::unique_ptr<Transport>> make_ucx_transport(std::uint64_t group, int rank,
                                                      std::span<const int> world_ranks, Session& session,
                                                      std::shared_ptr<UcxContext> context,
                                                      std::chrono::milliseconds timeout, Env& env,
                                                      PayloadMemory payloads, const StillWanted& still_wanted,
                                                      std::span<const int> called) {
  auto worker = UcxWorker::make(std::move(context), rank, ucx_memory(payloads));
  if (!worker.ok()) return worker.status();
  auto own = (*worker)->identity();
  if (!own.ok()) return own.status();
  auto addresses = exchange(session, env, "ucx/" + std::to_string(group), encode(*own), world_ranks,
                            "the UCX addresses", timeout, still_wanted, called);
  if (!addresses.ok()) return addresses.status();
  for (std::size_t peer = 0; peer < addresses->size(); ++peer) {
    auto identity = decode_ucx_identity((*addresses)[peer]);
    if (!identity) {
      const int number = called.empty() ? world_ranks[peer] : called[peer];
      const Member& member = session.members()[static_cast<std::size_t>(world_ranks[peer])];
      return Status(ErrorCode::internal,
                    who_is(number, member) + " told no UCX address: check that all ranks run one version",
                    number);
    }
    (*worker)->add_peer(std::move(*identity), is_watched(session, world_ranks[peer]));
  }
  return make_fabric_transport(std::move(*worker), static_cast<int>(world_ranks.size()), env, payloads);
}

}  // namespace lockstep::internal
