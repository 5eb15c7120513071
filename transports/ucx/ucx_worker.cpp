#include "transports/ucx/ucx_worker.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "lib/base/config.hpp"
#include "lib/net/fd.hpp"
#include "transports/ucx/ucx_wire.hpp"

namespace lockstep::internal {
namespace {

// Events handled in one go. Rendezvous stalls when either side stops before there is nothing left to do.
constexpr int kMostEvents = 256;

// UCX takes an interface that comes into use into its rounds within the first of them.
constexpr int kFirstRounds = 8;

// Called by UCX within progress(): the peer died, or left without a word.
void on_failure(void* argument, ucp_ep_h, ucs_status_t status) {
  static_cast<UcxPeer*>(argument)->fail(*ucx_library().value(), status);
}

// Whether UCX's description of an endpoint ("lane[1]: 3:rc_verbs/mlx5_0:1.0 ... rma_bw#0") names a transport
// whose puts the device does. Elsewhere they are messages in disguise: over TCP 4 to 8 times as long as
// tagged ones.
bool has_rdma_lane(const UcxLibrary& ucx, ucp_ep_h endpoint) {
  char* text = nullptr;
  std::size_t length = 0;
  std::FILE* const stream = open_memstream(&text, &length);
  if (stream == nullptr) return false;
  ucx.ep_print_info(endpoint, stream);
  std::fclose(stream);
  const std::string_view said(text, length);
  const bool found =
      said.find(":rc_") != std::string_view::npos || said.find(":dc_") != std::string_view::npos;
  std::free(text);
  return found;
}

// A worker's address as UCX gives it.
Result<std::string> address_of(const UcxLibrary& ucx, ucp_worker_h worker) {
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  if (const auto status = ucx.worker_get_address(worker, &address, &bytes); status != UCS_OK) {
    return ucx_error(ucx, "tell a worker's address", status);
  }
  std::string copy(reinterpret_cast<const char*>(address), bytes);
  ucx.worker_release_address(worker, address);
  return copy;
}

// UCX says of its own lack of descriptors that the peer does not answer. It takes two for a connection, one
// to watch it, and has given them back.
Status check_descriptors_left(int any, const std::string& what) {
  const Fd first(::fcntl(any, F_DUPFD_CLOEXEC, 0));
  const Fd second(::fcntl(any, F_DUPFD_CLOEXEC, 0));
  return second ? Status() : system_error(what, errno);
}

}  // namespace

Result<std::unique_ptr<UcxWorker>> UcxWorker::make(std::shared_ptr<UcxContext> context, int rank,
                                                   ucs_memory_type_t payloads) {
  auto life_sign = LifeSign::show();
  if (!life_sign.ok()) return life_sign.status();
  std::unique_ptr<UcxWorker> worker(new UcxWorker(std::move(context), rank, payloads, std::move(*life_sign)));
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
  if (!end_left_overs()) {  // It stays as it is, with its context: whom nobody steps moves nothing.
    new std::shared_ptr<UcxContext>(std::move(context_));
    return;
  }
  ucx().worker_destroy(worker_);  // With its endpoints: peers see the connections end.
  if (stand_in_ != nullptr) ucx().worker_destroy(stand_in_);
}

// UCX ends the process when a worker is destroyed while a rendezvous is under way. False: one is, and UCX
// cannot end it.
bool UcxWorker::end_left_overs() {
  bool all = true;
  for (UcxPeer& peer : peers_) {
    if (!peer.left_over || peer.endpoint == nullptr) continue;
    if (peer.ends_by_force()) close_by_force(peer);
    all &= peer.endpoint == nullptr;
  }
  return all;
}

Result<UcxIdentity> UcxWorker::identity() const {
  auto address = address_of(ucx(), worker_);
  if (!address.ok()) return address.status();
  return UcxIdentity{std::move(*address), life_sign_ ? life_sign_->name() : ""};
}

void UcxWorker::add_peer(UcxIdentity identity, bool watched) {
  UcxPeer& peer = peers_.emplace_back();
  peer.rank = static_cast<int>(peers_.size()) - 1;
  peer.address = std::move(identity.address);
  if (!is_down(identity.life_sign)) peer.life_sign = std::move(identity.life_sign);
  peer.watched = watched;
}

Status UcxWorker::connect(UcxPeer& peer) {
  if (peer.endpoint != nullptr || !peer.failure.ok()) return peer.failure;
  LOCKSTEP_RETURN_IF_ERROR(create_endpoint(peer));
  const std::string wanted = config_text("LOCKSTEP_UCX_PUTS");
  peer.puts_by_device = has_rdma_lane(ucx(), peer.endpoint);
  peer.puts = peer.watched && (wanted == "auto" ? peer.puts_by_device : wanted == "on");
  return {};
}

// Without failure detection where UCX's transports to that peer have none: the session tells who died.
ucs_status_t UcxWorker::open_endpoint(UcxPeer& peer) {
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
  if (status != UCS_OK) peer.endpoint = nullptr;
  return status;
}

// UCX would find out too, and complain on the standard error stream.
Status UcxWorker::create_endpoint(UcxPeer& peer) {
  if (peer.closed()) return peer.failure = peer.closed_the_communicator();
  const auto status = open_endpoint(peer);
  if (status == UCS_OK) return {};
  const std::string what = "UCX cannot reach rank " + std::to_string(peer.rank);
  peer.failure = check_descriptors_left(descriptor_, what);
  if (!peer.failure.ok()) return peer.failure;
  const std::string said = what + ": " + ucx().status_string(status);
  peer.failure =
      status == UCS_ERR_UNREACHABLE
          ? Status(ErrorCode::configuration,
                   said + "; see that UCX_TLS and UCX_NET_DEVICES allow a way that both hosts have",
                   peer.rank)
          : Status(ErrorCode::peer_lost, said + "; it may have left", peer.rank);
  return peer.failure;
}

Result<std::unique_ptr<Wire>> UcxWorker::wire(int rank, Channel channel) {
  UcxPeer& peer = peers_[static_cast<std::size_t>(rank)];
  peer.has_wire[static_cast<std::size_t>(channel)] = true;  // Or never will: it is no caller any more.
  const Status status = connect(peer);
  // What a rank sent before it left is here, though nothing can be sent to it any more.
  if (!status.ok() && status.code() != ErrorCode::peer_lost) return status;
  if (peer.endpoint == nullptr) find_what_arrived();
  return std::unique_ptr<Wire>(
      std::make_unique<UcxWire>(*this, peer, channel, plain_memory(UcxWire::kMemoryBytes)));
}

// For a wire whose peer has left: it is dead, and takes what progress() has found before it says so. But UCX
// looks only into interfaces that an endpoint here uses. Another one's arrivals a thread of UCX's notices,
// some time later, and until then they are here and not found, since the endpoint to that peer is never made.
// So one is made over the same interfaces: to another worker of this process.
void UcxWorker::find_what_arrived() {
  if (stand_in_ == nullptr) {
    ucp_worker_params_t params{};
    if (ucx().worker_create(context_->handle, &params, &stand_in_) != UCS_OK) stand_in_ = nullptr;
    auto address = stand_in_ != nullptr ? address_of(ucx(), stand_in_) : Result<std::string>(std::string());
    if (address.ok() && !address->empty()) {
      to_stand_in_.address = std::move(*address);
      static_cast<void>(open_endpoint(to_stand_in_));  // Where it cannot be made, UCX's thread is left.
    }
  }
  for (int i = 0; i < kFirstRounds; ++i) progress();
  while (progress()) {  // Ends: peers send only as much as links here have room for, which takes nothing yet.
  }
}

// One that knows of this rank says on its links that it leaves, and of one that does not nobody tells: its
// endpoint was made before it closed, and what goes there gets lost. What it may have sent before is taken
// first, so it is given up in the second look.
void UcxWorker::look_for_leavers() {
  for (UcxPeer& peer : peers_) {
    if (peer.endpoint == nullptr || peer.heard || !peer.failure.ok()) continue;
    if (peer.has_left) {
      peer.failure = peer.closed_the_communicator();
    } else if (peer.closed()) {
      peer.has_left = true;
      find_what_arrived();
    }
  }
}

// The first message of a link that lies here for nobody tells who calls. One to whose sender no wire can be
// made stays in front of all others: then everybody is asked for.
std::optional<std::pair<int, Channel>> UcxWorker::caller() {
  if (stopped_) return std::nullopt;
  const auto found =
      first_message(UcxTag::of(0, Channel::collective, UcxTag::Kind::message, 0), UcxTag::kAnyLink);
  if (!found) return std::nullopt;
  if (may_call(found->first, found->second)) return found;
  for (const UcxPeer& peer : peers_) {
    for (const Channel channel : kEachChannel) {
      const ucp_tag_t tag = UcxTag::of(peer.rank, channel, UcxTag::Kind::message, 0);
      if (may_call(peer.rank, channel) && first_message(tag, ~ucp_tag_t{0}))
        return std::pair(peer.rank, channel);
    }
  }
  return std::nullopt;
}

// Whose the first message is that nobody has received, of those with such a tag.
std::optional<std::pair<int, Channel>> UcxWorker::first_message(ucp_tag_t tag, ucp_tag_t mask) const {
  ucp_tag_recv_info_t info{};
  if (ucx().tag_probe_nb(worker_, tag, mask, 0, &info) == nullptr) return std::nullopt;
  return std::pair(UcxTag::sender(info.sender_tag), UcxTag::channel(info.sender_tag));
}

bool UcxWorker::may_call(int sender, Channel channel) const {
  const auto number = static_cast<std::size_t>(channel);
  if (sender >= static_cast<int>(peers_.size()) || number >= kChannels || sender == rank_) return false;
  return !peers_[static_cast<std::size_t>(sender)].has_wire[number];
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

// Where the process may lock no more, UCX copies.
Result<std::span<std::byte>> UcxWorker::bounce_memory(std::size_t bytes) {
  const auto mapped = memory_.allocate(bytes);
  if (!mapped.ok()) return plain_memory(bytes);
  lent_.push_back(mapped.value());
  return mapped;
}

std::span<std::byte> UcxWorker::plain_memory(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  // Not cleared: pages that are never used are never touched.
  plain_.emplace_back(new std::byte[bytes + kAlignment]);
  auto address = reinterpret_cast<std::uintptr_t>(plain_.back().get());
  address = (address + kAlignment - 1) / kAlignment * kAlignment;
  return lent_.emplace_back(reinterpret_cast<std::byte*>(address), bytes);
}

ucs_memory_type_t UcxWorker::type_of(const void* memory) const {
  if (payloads_ == UCS_MEMORY_TYPE_UNKNOWN || memory == nullptr) return UCS_MEMORY_TYPE_UNKNOWN;
  const auto* const first = static_cast<const std::byte*>(memory);
  for (const std::span<std::byte> own : lent_) {
    if (first >= own.data() && first < own.data() + own.size()) return UCS_MEMORY_TYPE_HOST;
  }
  return payloads_;
}

void UcxWorker::cut(UcxPeer& peer, Status why) {
  if (peer.failure.ok()) peer.failure = std::move(why);
  if (peer.endpoint == nullptr) return;
  if (!peer.ends_by_force()) return stop();
  close_by_force(peer);
}

void UcxWorker::close_by_force(UcxPeer& peer) {
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
