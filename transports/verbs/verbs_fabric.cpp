#include "transports/verbs/verbs_fabric.hpp"

#include <arpa/inet.h>
#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "transports/fabric/limits.hpp"
#include "transports/verbs/verbs_wire.hpp"

namespace lockstep::internal {
namespace {

constexpr int kPolled = 32;      // Completions taken at once.
constexpr int kMostRounds = 64;  // So often in one go.

}  // namespace

Result<std::unique_ptr<VerbsFabric>> VerbsFabric::make(std::shared_ptr<VerbsDevice> device, int rank,
                                                       int size, Env& env) {
  auto sizes = queue_sizes(size, device->limits());
  if (!sizes.ok()) return sizes.status();
  std::unique_ptr<VerbsFabric> fabric(new VerbsFabric(device, rank, size, *sizes));
  LOCKSTEP_RETURN_IF_ERROR(fabric->open_queues());
  for (int peer = 0; peer < size; ++peer) {
    auto& pair = fabric->pairs_.emplace_back();
    if (peer == rank) continue;
    auto made = VerbsQueuePair::make(device, peer, fabric->queue_, fabric->receives_,
                                     static_cast<std::uint32_t>(env.random()), *sizes);
    if (!made.ok()) return made.status();
    pair = std::move(*made);
    fabric->by_number_[pair->number()] = pair.get();
  }
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
  auto slots = memory_.allocate(sizes_.receives * kSlotBytes);
  if (!slots.ok()) return slots.status();
  slots_ = *slots;
  slots_key_ = memory_.find(slots_.data(), slots_.size())->lkey;
  for (std::uint32_t slot = 0; slot < sizes_.receives; ++slot) post(slot);
  return {};
}

VerbsFabric::~VerbsFabric() {
  const VerbsLibrary& verbs = device_->verbs();
  pairs_.clear();
  if (receives_ != nullptr) verbs.destroy_srq(receives_);
  if (queue_ != nullptr) verbs.destroy_cq(queue_);
  if (events_ != nullptr) verbs.destroy_comp_channel(events_);
}

std::string VerbsFabric::addresses() const {
  std::string text;
  for (const auto& pair : pairs_) {
    const QueuePairAddress address = pair ? pair->address() : QueuePairAddress{};
    text.append(reinterpret_cast<const char*>(&address), sizeof address);
  }
  return text;
}

Status VerbsFabric::meet(const std::vector<std::string>& addresses) {
  for (std::size_t peer = 0; peer < pairs_.size(); ++peer) {
    if (!pairs_[peer]) continue;
    if (addresses[peer].size() != pairs_.size() * sizeof(QueuePairAddress)) {
      return Status(ErrorCode::internal, "rank " + std::to_string(peer) + " published no RDMA address",
                    static_cast<int>(peer));
    }
    QueuePairAddress theirs;
    std::memcpy(&theirs, addresses[peer].data() + static_cast<std::size_t>(rank_) * sizeof theirs,
                sizeof theirs);
    LOCKSTEP_RETURN_IF_ERROR(pairs_[peer]->connect(theirs));
  }
  return {};
}

Result<std::unique_ptr<Wire>> VerbsFabric::wire(int peer, Channel channel) {
  auto made = VerbsWire::make(*this, *pairs_[static_cast<std::size_t>(peer)], channel);
  if (made.ok()) inbox(peer, channel).has_wire = true;
  if (!made.ok()) return made.status();
  return std::unique_ptr<Wire>(std::move(*made));
}

std::optional<std::pair<int, Channel>> VerbsFabric::caller() {
  for (std::size_t i = 0; i < inboxes_.size(); ++i) {
    if (inboxes_[i].has_wire || inboxes_[i].messages.empty()) continue;
    return std::pair(static_cast<int>(i / 2), static_cast<Channel>(i % 2));
  }
  return std::nullopt;
}

void VerbsFabric::post(std::uint32_t slot) {
  ibv_sge place{reinterpret_cast<std::uint64_t>(slots_.data() + slot * kSlotBytes), kSlotBytes, slots_key_};
  ibv_recv_wr request{};
  request.wr_id = slot;
  request.sg_list = &place;
  request.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  static_cast<void>(ibv_post_srq_recv(receives_, &request, &refused));  // There is room: slots are counted.
}

bool VerbsFabric::progress() {
  bool moved = false;
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

// The immediate data say over which channel: every message and the last write of every transfer has them.
void VerbsFabric::received(const ibv_wc& completion) {
  const auto slot = static_cast<std::uint32_t>(completion.wr_id);
  const int peer = by_number_[completion.qp_num]->peer();
  VerbsInbox& box = inbox(peer, static_cast<Channel>(ntohl(completion.imm_data) & 1));
  if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    ++box.landed;
    return post(slot);
  }
  box.messages.push_back({{slots_.data() + slot * kSlotBytes, completion.byte_len}, slot});
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
  for (const auto& pair : pairs_) {
    if (pair && pair->failure().ok() && !pair->idle()) return false;
  }
  return true;
}

}  // namespace lockstep::internal
