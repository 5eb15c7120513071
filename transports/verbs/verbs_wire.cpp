#include "transports/verbs/verbs_wire.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "lib/reduce/copy.hpp"
#include "transports/fabric/limits.hpp"
#include "transports/verbs/limits.hpp"

namespace lockstep::internal {

Result<std::unique_ptr<VerbsWire>> VerbsWire::make(VerbsFabric& fabric, VerbsQueuePair& pair,
                                                   Channel channel) {
  std::unique_ptr<VerbsWire> wire(new VerbsWire(fabric, pair, channel));
  auto slots = fabric.memory().allocate(kLinkSlots * kSlotBytes);
  if (!slots.ok()) return slots.status();
  wire->slots_ = *slots;
  wire->slots_key_ = fabric.memory().find(slots->data(), slots->size())->lkey;
  for (std::size_t i = 0; i < kLinkSlots; ++i) wire->free_slots_.push_back(slots->data() + i * kSlotBytes);
  return wire;
}

// ---- messages ----

Result<bool> VerbsWire::send(std::span<const std::byte> head, std::span<const std::byte> body) {
  if (!failure().ok()) return failure();
  if (free_slots_.empty() || !pair_.room()) return false;
  std::byte* const slot = free_slots_.front();
  const std::size_t bytes = head.size() + body.size();
  std::memcpy(slot, head.data(), head.size());
  if (!body.empty()) std::memcpy(slot + head.size(), body.data(), body.size());
  ibv_sge place{reinterpret_cast<std::uint64_t>(slot), static_cast<std::uint32_t>(bytes), slots_key_};
  ibv_send_wr request{};
  request.sg_list = &place;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.imm_data = htonl(static_cast<std::uint32_t>(channel_));
  // What rides in the request leaves its slot free at once.
  const bool rides = bytes <= pair_.inline_bytes();
  if (rides) request.send_flags = IBV_SEND_INLINE;
  if (!rides) free_slots_.pop_front();
  // A note alone is signalled: the last of a link is one, and its end is waited for. So is the use of a slot
  // when few are left, since only completions bring them back.
  const bool signal = body.empty() || free_slots_.size() < kLinkSlots / 2;
  LOCKSTEP_RETURN_IF_ERROR(pair_.post(
      request, signal, rides ? VerbsQueuePair::Done() : [this, slot] { free_slots_.push_back(slot); }));
  return true;
}

std::optional<Arrival> VerbsWire::next() {
  if (inbox_.messages.empty()) return std::nullopt;
  const Arrival arrival = inbox_.messages.front();
  inbox_.messages.pop_front();
  return arrival;
}

// ---- transfers ----

Status VerbsWire::open_landing(std::span<std::byte> memory, bool, Landing& landing) {
  auto region = fabric_.memory().find(memory.data(), memory.size());
  if (region == nullptr) return Status(ErrorCode::internal, "a landing in memory that is not registered");
  landing.number = inbox_.opened++;
  landing.bytes = memory.size();
  landing.address = reinterpret_cast<std::uint64_t>(memory.data());
  landing.key_bytes = sizeof region->rkey;
  std::memcpy(landing.key.data(), &region->rkey, sizeof region->rkey);
  open_.push_back(std::move(region));
  return {};
}

std::uint64_t VerbsWire::landed() {
  while (!open_.empty() && inbox_.opened - open_.size() < inbox_.landed) open_.pop_front();
  return inbox_.landed;
}

Status VerbsWire::open_stages() {
  if (!stages_.empty()) return {};
  auto stages = fabric_.memory().allocate(kStages * kStageBytes);
  if (!stages.ok()) return stages.status();
  stages_ = *stages;
  stages_key_ = fabric_.memory().find(stages_.data(), stages_.size())->lkey;
  for (std::size_t i = 0; i < kStages; ++i) free_stages_.push_back(stages_.data() + i * kStageBytes);
  return {};
}

Result<bool> VerbsWire::fill(const Landing& landing, std::span<const std::byte> memory) {
  if (!failure().ok()) return failure();
  std::uint32_t key = 0;
  if (landing.key_bytes != sizeof key) {
    return Status(ErrorCode::internal,
                  "rank " + std::to_string(pair_.peer()) +
                      " opened memory without a key: check that all ranks run one version",
                  pair_.peer());
  }
  std::memcpy(&key, landing.key.data(), sizeof key);
  auto region = fabric_.memory().find(memory.data(), memory.size());
  if (region == nullptr) LOCKSTEP_RETURN_IF_ERROR(open_stages());
  filling_.push_back({landing.address, key, memory, std::move(region), 0});
  LOCKSTEP_RETURN_IF_ERROR(write_on());
  return true;
}

std::uint64_t VerbsWire::filled() {
  static_cast<void>(write_on());  // Its error is failure()'s.
  return filled_;
}

Status VerbsWire::write_on() {
  while (!filling_.empty() && failure().ok()) {
    auto posted = write_part(filling_.front());
    if (!posted.ok()) return posted.status();
    if (!*posted) break;
    if (filling_.front().posted == filling_.front().memory.size()) filling_.pop_front();
  }
  return failure();
}

Result<bool> VerbsWire::write_part(Filling& filling) {
  const bool staged = filling.region == nullptr;
  if (!pair_.room() || (staged && free_stages_.empty())) return false;
  const std::uint64_t most = staged ? std::min<std::uint64_t>(kStageBytes, fabric_.sizes().write_bytes)
                                    : fabric_.sizes().write_bytes;
  const auto part = filling.memory.subspan(
      filling.posted, std::min<std::uint64_t>(filling.memory.size() - filling.posted, most));
  const std::byte* from = part.data();
  std::byte* stage = nullptr;
  if (staged) {
    stage = free_stages_.front();
    free_stages_.pop_front();
    copy_bytes(stage, part.data(), part.size());
    from = stage;
  }
  ibv_sge place{reinterpret_cast<std::uint64_t>(from), static_cast<std::uint32_t>(part.size()),
                staged ? stages_key_ : filling.region->lkey};
  ibv_send_wr request{};
  request.sg_list = &place;
  request.num_sge = 1;
  const bool last = filling.posted + part.size() == filling.memory.size();
  request.opcode = last ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  request.imm_data = htonl(static_cast<std::uint32_t>(channel_));
  request.wr.rdma.remote_addr = filling.address + filling.posted;
  request.wr.rdma.rkey = filling.key;
  LOCKSTEP_RETURN_IF_ERROR(pair_.post(request, last || staged, [this, stage, last, held = filling.region] {
    if (stage != nullptr) free_stages_.push_back(stage);
    if (last) ++filled_;
  }));
  filling.posted += part.size();
  return true;
}

}  // namespace lockstep::internal
