#include "transports/verbs/verbs_fabric.hpp"

#include <arpa/inet.h>
#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "transports/verbs/limits.hpp"
#include "transports/verbs/verbs_wire.hpp"

namespace lockstep::internal {
namespace {

constexpr int kPolled = 32;      // Completions taken at once.
constexpr int kMostRounds = 64;  // So often in one go.

}  // namespace

Result<std::unique_ptr<VerbsFabric>> VerbsFabric::make(std::shared_ptr<VerbsDevice> device,
                                                       std::unique_ptr<VerbsMeeting> meeting, int size,
                                                       Env& env) {
  auto sizes = queue_sizes(size, device->limits());
  if (!sizes.ok()) return sizes.status();
  std::unique_ptr<VerbsFabric> fabric(
      new VerbsFabric(std::move(device), std::move(meeting), size, *sizes, env));
  LOCKSTEP_RETURN_IF_ERROR(fabric->open_queues());
  return fabric;
}

Status VerbsFabric::open_queues() {
  const VerbsLibrary& verbs = device_->verbs();
  events_ = verbs.create_comp_channel(device_->context());
  if (events_ == nullptr) return system_error("creating an RDMA event channel", errno);
  fcntl(events_->fd, F_SETFL, fcntl(events_->fd, F_GETFL) | O_NONBLOCK);
  queue_ = verbs.create_cq(device_->context(), static_cast<int>(sizes_.completions), nullptr, events_, 0);
  if (queue_ == nullptr) return system_error("creating an RDMA completion queue", errno);
  ibv_srq_init_attr wanted{};
  wanted.attr.max_wr = sizes_.receives;
  wanted.attr.max_sge = 1;
  receives_ = verbs.create_srq(device_->domain(), &wanted);
  if (receives_ == nullptr) return system_error("creating a shared RDMA receive queue", errno);
  // Memory that may not be locked is an error at the start, not in the first collective.
  return add_slots();
}

Status VerbsFabric::add_slots() {
  auto memory = memory_.allocate(kReceivesOfPeer * kSlotBytes);
  if (!memory.ok()) return memory.status();
  const auto first = static_cast<std::uint32_t>(slots_.size()) * kReceivesOfPeer;
  slots_.push_back({*memory, memory_.find(memory->data(), memory->size())->lkey});
  for (std::uint32_t slot = first; slot < first + kReceivesOfPeer; ++slot) post(slot);
  return {};
}

VerbsFabric::~VerbsFabric() {
  const VerbsLibrary& verbs = device_->verbs();
  peers_.clear();
  if (receives_ != nullptr) verbs.destroy_srq(receives_);
  if (queue_ != nullptr) verbs.destroy_cq(queue_);
  if (events_ != nullptr) verbs.destroy_comp_channel(events_);
}

// ---- connecting ----

// Moves the connections on that are being made, wanted here or by the peer. Whether anything moved.
bool VerbsFabric::meet() {
  bool moved = false;
  for (auto& met : meeting_->met()) {
    Peer& peer = peers_[static_cast<std::size_t>(met.peer)];
    peer.failure = met.socket.ok() ? begin(met.peer, std::move(*met.socket)) : met.socket.status();
    if (peer.failure.ok()) under_way_.push_back(met.peer);
    moved = true;
  }
  for (std::size_t left = under_way_.size(); left > 0; --left) {
    const int rank = under_way_.front();
    under_way_.pop_front();
    Peer& peer = peers_[static_cast<std::size_t>(rank)];
    peer.failure = go_on(peer);
    const bool over = peer.usable || !peer.failure.ok();
    if (over) peer.swap.reset();
    if (!over) under_way_.push_back(rank);
    moved |= over;
  }
  return moved;
}

Status VerbsFabric::begin(int rank, Fd socket) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (slots_.size() < by_number_.size() + 1) LOCKSTEP_RETURN_IF_ERROR(add_slots());
  auto pair = VerbsQueuePair::make(device_, rank, queue_, receives_,
                                   static_cast<std::uint32_t>(env_.random()), sizes_);
  if (!pair.ok()) return pair.status();
  peer.pair = std::move(*pair);
  by_number_[peer.pair->number()] = peer.pair.get();
  auto swap = AddressSwap::begin(std::move(socket), rank, peer.pair->address());
  if (!swap.ok()) return swap.status();
  peer.swap.emplace(std::move(*swap));
  meeting_->watch(peer.swap->descriptor());
  return {};
}

Status VerbsFabric::go_on(Peer& peer) {
  if (!peer.receives) {
    const auto theirs = peer.swap->address();
    if (!theirs.ok()) return theirs.status();
    if (!theirs.value()) return {};
    LOCKSTEP_RETURN_IF_ERROR(peer.pair->connect(*theirs.value()));
    LOCKSTEP_RETURN_IF_ERROR(peer.swap->say_ready());
    peer.receives = true;
  }
  const auto ready = peer.swap->peer_is_ready();
  if (!ready.ok()) return ready.status();
  peer.usable = ready.value();
  return {};
}

bool VerbsFabric::connecting() {
  meet();
  return !under_way_.empty();
}

Result<std::unique_ptr<Wire>> VerbsFabric::wire(int rank, Channel channel) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (!peer.wanted) meeting_->want(rank);
  peer.wanted = true;
  if (!peer.usable) meet();
  if (peer.failure.ok() && !peer.usable) return std::unique_ptr<Wire>();
  inbox(rank, channel).has_wire = true;  // Or never will: it is no caller any more.
  if (!peer.failure.ok()) return peer.failure;
  auto made = VerbsWire::make(*this, *peer.pair, channel);
  if (!made.ok()) return made.status();
  return std::unique_ptr<Wire>(std::move(*made));
}

// ---- moving ----

std::optional<std::pair<int, Channel>> VerbsFabric::caller() {
  for (std::size_t i = 0; i < inboxes_.size(); ++i) {
    if (inboxes_[i].has_wire || inboxes_[i].messages.empty()) continue;
    return std::pair(static_cast<int>(i / kChannels), static_cast<Channel>(i % kChannels));
  }
  return std::nullopt;
}

std::byte* VerbsFabric::memory_of(std::uint32_t slot) const {
  return slots_[slot / kReceivesOfPeer].memory.data() + slot % kReceivesOfPeer * kSlotBytes;
}

void VerbsFabric::post(std::uint32_t slot) {
  ibv_sge place{reinterpret_cast<std::uint64_t>(memory_of(slot)), kSlotBytes,
                slots_[slot / kReceivesOfPeer].key};
  ibv_recv_wr request{};
  request.wr_id = slot;
  request.sg_list = &place;
  request.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  static_cast<void>(ibv_post_srq_recv(receives_, &request, &refused));  // There is room: slots are counted.
}

bool VerbsFabric::progress() {
  bool moved = meet();
  for (int round = 0; round < kMostRounds; ++round) {
    ibv_wc completions[kPolled];
    const int count = ibv_poll_cq(queue_, kPolled, completions);
    for (int i = 0; i < count; ++i) {
      const auto found = by_number_.find(completions[i].qp_num);
      if (found == by_number_.end()) continue;
      // The opcode is valid for successes only; failures cut the connection whatever they were.
      const bool receive =
          completions[i].status == IBV_WC_SUCCESS && (completions[i].opcode & IBV_WC_RECV) != 0;
      if (receive) received(completions[i]);
      if (!receive) found->second->complete(completions[i]);
    }
    if (count > 0) moved = true;
    if (count < kPolled) break;
  }
  return moved;
}

// The immediate data say over which channel: every message and the last write of every transfer has them. A
// write that fills no landing would count for one that nobody has filled, or that is not there. A message
// beyond what its channel may have unread would take the receives of others, whose connections then break.
void VerbsFabric::received(const ibv_wc& completion) {
  const auto slot = static_cast<std::uint32_t>(completion.wr_id);
  VerbsQueuePair& pair = *by_number_[completion.qp_num];
  VerbsInbox& box = inbox(pair.peer(), static_cast<Channel>(ntohl(completion.imm_data) % kChannels));
  const bool is_message = completion.opcode != IBV_WC_RECV_RDMA_WITH_IMM;
  if (is_message && box.held < kReceivesOfChannel) {
    ++box.held;
    box.messages.push_back({{memory_of(slot), completion.byte_len}, slot});
    return;
  }
  post(slot);
  if (!is_message && box.landed < box.opened) {
    ++box.landed;
    return;
  }
  pair.cut(Status(
      ErrorCode::internal,
      "rank " + std::to_string(pair.peer()) + " sent more than it may: check that all ranks run one version",
      pair.peer()));
}

void VerbsFabric::drain_events() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  unsigned events = 0;
  while (device_->verbs().get_cq_event(events_, &queue, &context) == 0) ++events;
  if (events > 0) device_->verbs().ack_cq_events(queue_, events);
}

void VerbsFabric::arm() {
  drain_events();
  static_cast<void>(ibv_req_notify_cq(queue_, 0));
  progress();  // What came before the request rings no bell; the caller looks once more.
}

bool VerbsFabric::flushed() {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    return !peer.pair || !peer.pair->failure().ok() || peer.pair->idle();
  });
}

}  // namespace lockstep::internal
