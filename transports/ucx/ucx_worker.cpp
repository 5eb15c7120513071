#include "transports/ucx/ucx_worker.hpp"

#include "transports/ucx/ucx_wire.hpp"

namespace lockstep::internal {
namespace {

// Events handled in one go. Rendezvous stalls when either side stops before there is nothing left to do.
constexpr int kMostEvents = 256;

// Called by UCX within progress(): the peer died, or left without a word.
void on_failure(void* argument, ucp_ep_h, ucs_status_t status) {
  auto& peer = *static_cast<UcxPeer*>(argument);
  if (!peer.failure.ok()) return;
  const auto ucx = ucx_library();
  peer.failure = Status(
      ErrorCode::peer_lost,
      "rank " + std::to_string(peer.rank) + " is gone: UCX says: " + ucx.value()->status_string(status),
      peer.rank);
}

}  // namespace

Result<std::unique_ptr<UcxWorker>> UcxWorker::make(std::shared_ptr<UcxContext> context, int rank,
                                                   ucs_memory_type_t payloads) {
  std::unique_ptr<UcxWorker> worker(new UcxWorker(std::move(context), rank, payloads));
  const UcxLibrary& ucx = worker->ucx();
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // The engine's lock.
  if (const auto status = ucx.worker_create(worker->context_->handle, &params, &worker->worker_);
      status != UCS_OK) {
    return ucx_error(ucx, "create a worker", status);
  }
  if (const auto status = ucx.worker_get_efd(worker->worker_, &worker->descriptor_); status != UCS_OK) {
    return ucx_error(ucx, "wake a waiting worker", status);
  }
  return worker;
}

UcxWorker::~UcxWorker() {
  if (worker_ == nullptr) return;
  if (flush_ != nullptr) ucx().request_free(flush_);
  ucx().worker_destroy(worker_);  // With its endpoints: peers see the connections end.
}

Result<std::string> UcxWorker::address() const {
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  if (const auto status = ucx().worker_get_address(worker_, &address, &bytes); status != UCS_OK) {
    return ucx_error(ucx(), "tell a worker's address", status);
  }
  std::string copy(reinterpret_cast<const char*>(address), bytes);
  ucx().worker_release_address(worker_, address);
  return copy;
}

void UcxWorker::add_peer(std::string address, bool watched) {
  UcxPeer& peer = peers_.emplace_back();
  peer.rank = static_cast<int>(peers_.size()) - 1;
  peer.address = std::move(address);
  peer.watched = watched;
}

// Without failure detection where UCX's transports to that peer have none: the session tells who died.
Status UcxWorker::connect(UcxPeer& peer) {
  if (peer.endpoint != nullptr || !peer.failure.ok()) return peer.failure;
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(peer.address.data());
  params.err_handler.cb = on_failure;
  params.err_handler.arg = &peer;
  params.err_mode = peer.watched ? UCP_ERR_HANDLING_MODE_PEER : UCP_ERR_HANDLING_MODE_NONE;
  auto status = ucx().ep_create(worker_, &params, &peer.endpoint);
  if (status == UCS_ERR_UNREACHABLE && peer.watched) {
    peer.watched = false;
    params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
    status = ucx().ep_create(worker_, &params, &peer.endpoint);
  }
  if (status == UCS_OK) return {};
  peer.endpoint = nullptr;
  peer.failure =
      Status(ErrorCode::configuration,
             "UCX cannot reach rank " + std::to_string(peer.rank) + ": " + ucx().status_string(status) +
                 "; see that UCX_TLS and UCX_NET_DEVICES allow a way that both hosts have",
             peer.rank);
  return peer.failure;
}

Result<std::unique_ptr<Wire>> UcxWorker::wire(int rank, Channel channel) {
  UcxPeer& peer = peers_[static_cast<std::size_t>(rank)];
  LOCKSTEP_RETURN_IF_ERROR(connect(peer));
  auto memory = bounce_memory(UcxWire::kMemoryBytes);
  if (!memory.ok()) return memory.status();
  peer.has_wire[static_cast<std::size_t>(channel)] = true;
  return std::unique_ptr<Wire>(std::make_unique<UcxWire>(*this, peer, channel, *memory));
}

std::optional<std::pair<int, Channel>> UcxWorker::caller() {
  if (stopped_) return std::nullopt;
  ucp_tag_recv_info_t info{};
  const auto first = UcxTag::of(0, Channel::collective, UcxTag::message, 0);
  if (ucx().tag_probe_nb(worker_, first, UcxTag::kAnyLink, 0, &info) == nullptr) return std::nullopt;
  const int sender = UcxTag::sender(info.sender_tag);
  const Channel channel = UcxTag::channel(info.sender_tag);
  const bool known =
      sender < static_cast<int>(peers_.size()) && static_cast<std::size_t>(channel) < kChannels;
  if (!known || sender == rank_) return std::nullopt;
  if (peers_[static_cast<std::size_t>(sender)].has_wire[static_cast<std::size_t>(channel)])
    return std::nullopt;
  return std::pair(sender, channel);
}

bool UcxWorker::progress() {
  bool moved = false;
  for (int i = 0; i < kMostEvents && !stopped_ && ucx().worker_progress(worker_) != 0; ++i) moved = true;
  return moved;
}

void UcxWorker::arm() {
  for (int i = 0; i < kMostEvents && !stopped_ && ucx().worker_arm(worker_) == UCS_ERR_BUSY; ++i) {
    ucx().worker_progress(worker_);
  }
}

bool UcxWorker::flushed() {
  if (stopped_) return true;
  if (flush_ == nullptr) {
    ucp_request_param_t none{};
    flush_ = ucx().worker_flush_nbx(worker_, &none);
    if (!UCS_PTR_IS_PTR(flush_)) {
      flush_ = nullptr;
      return true;
    }
  }
  if (ucx().request_check_status(flush_) == UCS_INPROGRESS) return false;
  ucx().request_free(flush_);
  flush_ = nullptr;
  return true;
}

Result<std::span<std::byte>> UcxWorker::bounce_memory(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  // Not cleared: pages that are never used are never touched.
  memory_.emplace_back(new std::byte[bytes + kAlignment]);
  auto address = reinterpret_cast<std::uintptr_t>(memory_.back().get());
  address = (address + kAlignment - 1) / kAlignment * kAlignment;
  bounces_.emplace_back(reinterpret_cast<std::byte*>(address), bytes);
  return bounces_.back();
}

ucs_memory_type_t UcxWorker::type_of(const void* memory) const {
  if (payloads_ == UCS_MEMORY_TYPE_UNKNOWN || memory == nullptr) return UCS_MEMORY_TYPE_UNKNOWN;
  const auto* const first = static_cast<const std::byte*>(memory);
  for (const std::span<std::byte> own : bounces_) {
    if (first >= own.data() && first < own.data() + own.size()) return UCS_MEMORY_TYPE_HOST;
  }
  return payloads_;
}

void UcxWorker::cut(UcxPeer& peer, Status why) {
  if (peer.failure.ok()) peer.failure = std::move(why);
  if (peer.endpoint == nullptr) return;
  if (!peer.watched) return stop();  // UCX cannot end such an endpoint by force.
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  void* request = ucx().ep_close_nbx(peer.endpoint, &params);
  peer.endpoint = nullptr;
  if (!UCS_PTR_IS_PTR(request)) return;
  for (int i = 0; i < kMostEvents && ucx().request_check_status(request) == UCS_INPROGRESS; ++i) {
    ucx().worker_progress(worker_);
  }
  ucx().request_free(request);
}

}  // namespace lockstep::internal
