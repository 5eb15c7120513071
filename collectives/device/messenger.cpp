#include "collectives/device/messenger.hpp"

#include <algorithm>
#include <utility>

#include "collectives/device/patience.hpp"

namespace lockstep::internal {
namespace {

constexpr int kSlots = 2;  ///< One is filled while the other is emptied.
constexpr int kNoticeTag = 1, kAcknowledgementTag = 2, kDataTag = 3;
/// From here on a registered buffer is lent to the receiver, and one that a fabric reaches: copies less, but
/// the send waits for it.
constexpr std::uint64_t kLendBytes = 64 << 10;
constexpr std::size_t kSlotAlignment = 256;

std::size_t slot_size(std::size_t bytes, std::size_t slots) {
  return slots == 0 ? 0 : bytes / slots / kSlotAlignment * kSlotAlignment;
}

}  // namespace

DeviceMessenger::DeviceMessenger(Copier& copier, Engine& control, SharedBuffers& buffers, MessageAreas areas)
    : copier_(copier),
      control_(control),
      self_(control.group().rank),
      buffers_(buffers),
      areas_(std::move(areas)),
      out_(static_cast<std::size_t>(control.group().size())),
      in_(static_cast<std::size_t>(control.group().size())) {
  slot_bytes_ = slot_size(areas_.bytes, areas_.by_member.size() * kSlots);
  far_slot_bytes_ = slot_size(areas_.far.size(), out_.size() * 2 * kSlots);
}

DeviceMessenger::~DeviceMessenger() {
  const auto release = [](Engine& engine, Operation* operation) {
    if (operation == nullptr) return;
    engine.wait(*operation);  // The group is closed or revoked: it ends at once.
    engine.release(operation);
  };
  for (const Outbox& box : out_) release(control_, box.acknowledgement);
  for (const Inbox& box : in_) {
    release(control_, box.noticed);
    release(far_mail(), box.data);
  }
  for (const Outgoing& message : outgoing_) release(mail_of(message), message.operation);
}

std::byte* DeviceMessenger::slot(int owner, int reader, std::uint64_t chunk) const {
  const auto place = static_cast<std::size_t>(near(reader)) * kSlots + chunk % kSlots;
  return areas_.by_member[static_cast<std::size_t>(near(owner))] + place * slot_bytes_;
}

bool DeviceMessenger::goes_straight(int peer, std::uint64_t bytes) const {
  return is_far(peer) && areas_.straight != nullptr && bytes >= kLendBytes;
}

/// Of this rank's own.
std::byte* DeviceMessenger::far_slot(int peer, Direction direction, std::uint64_t chunk) const {
  const auto box = static_cast<std::size_t>(peer) * 2 + (direction == Direction::in ? 1 : 0);
  return areas_.far.data() + (box * kSlots + chunk % kSlots) * far_slot_bytes_;
}

Status DeviceMessenger::run(std::span<const DeviceMessage> messages, Nanos timeout) {
  for (int peer = 0; peer < size(); ++peer) {
    out(peer).messages.clear();
    in(peer).messages.clear();
    out(peer).next = in(peer).next = 0;
  }
  for (const DeviceMessage& message : messages) {
    if (message.is_send) {
      out(message.peer).messages.push_back(message);
    } else {
      in(message.peer).messages.push_back(message);
    }
  }
  const Nanos end = end_after(timeout);
  copier_.begin(end);
  if (Status status = copy_own(); !status.ok()) return fail(status);
  while (!finished()) {
    bool moved = false;
    Status status = advance(moved);
    if (status.ok() && !moved) status = wait_a_moment(end);
    if (!status.ok()) return fail(std::move(status));
  }
  return {};
}

/// What this rank sends to itself.
Status DeviceMessenger::copy_own() {
  Outbox& from = out(self_);
  Inbox& to = in(self_);
  for (; from.next < from.messages.size(); ++from.next, ++to.next) {
    const DeviceMessage& source = from.messages[from.next];
    const DeviceMessage& target = to.messages[to.next];
    if (source.bytes != target.bytes) return check(self_, {source.bytes, 0, source.bytes, {}}, target);
    if (source.bytes > 0 && source.buffer != target.buffer)
      LOCKSTEP_RETURN_IF_ERROR(copier_.copy(target.buffer, source.buffer, source.bytes));
  }
  return copier_.await();
}

/// One round: enqueues every copy that can be made, waits for them, and tells the peers.
Status DeviceMessenger::advance(bool& moved) {
  bool copied = false;
  for (int peer = 0; peer < size(); ++peer) {
    if (peer == self_) continue;
    LOCKSTEP_RETURN_IF_ERROR(send_next(peer, moved, copied));
    LOCKSTEP_RETURN_IF_ERROR(receive_next(peer, moved, copied));
  }
  if (copied) LOCKSTEP_RETURN_IF_ERROR(copier_.await());
  for (int peer = 0; peer < size(); ++peer) {
    if (out(peer).copying) tell(peer);
    if (in(peer).copying) take(peer);
  }
  std::erase_if(outgoing_, [&](Outgoing& message) {
    auto sent = arrived(mail_of(message), message.operation);  // A failure ends what is awaited, too.
    return !sent.ok() || *sent;
  });
  return {};
}

/// Whether a slot is free for the next chunk, or a buffer that was lent is back.
bool DeviceMessenger::may_send(int peer) {
  Outbox& box = out(peer);
  const bool may = box.lent ? box.freed >= box.chunks : box.chunks - box.freed < kSlots;
  if (!may && box.acknowledgement == nullptr)
    box.acknowledgement =
        expect(control_, peer, kAcknowledgementTag, &box.acknowledged, sizeof box.acknowledged);
  return may;
}

Status DeviceMessenger::send_next(int peer, bool& moved, bool& copied) {
  Outbox& box = out(peer);
  auto heard = arrived(control_, box.acknowledgement);
  if (!heard.ok()) return heard.status();
  if (*heard) box.freed = box.acknowledged;
  moved |= *heard;
  if (box.next == box.messages.size() || !may_send(peer)) return {};
  moved = true;
  if (!box.lent) return begin_chunk(peer, copied);
  box.lent = false;
  ++box.next;
  return {};
}

/// Its notice, and its copy into the slot where it needs one.
Status DeviceMessenger::begin_chunk(int peer, bool& copied) {
  Outbox& box = out(peer);
  const DeviceMessage& message = box.messages[box.next];
  const std::uint64_t rest = message.bytes - box.told;
  box.notice = {message.bytes, box.told, std::min<std::uint64_t>(chunk_bytes(peer), rest), {}};
  if (areas_.lends && message.bytes >= kLendBytes && !is_far(peer))
    box.notice.direct = buffers_.find(message.buffer, message.bytes);
  if (box.notice.direct.owner != 0 || goes_straight(peer, message.bytes)) {
    box.notice.bytes = message.bytes;
  } else if (box.notice.bytes > 0) {
    copied = true;
    const auto* const from = static_cast<const std::byte*>(message.buffer) + box.told;
    std::byte* const to =
        is_far(peer) ? far_slot(peer, Direction::out, box.chunks) : slot(self_, peer, box.chunks);
    LOCKSTEP_RETURN_IF_ERROR(copier_.copy(to, from, box.notice.bytes));
  }
  box.copying = true;
  return {};
}

/// The chunk is where its notice says.
void DeviceMessenger::tell(int peer) {
  Outbox& box = out(peer);
  post(peer, kNoticeTag, {box.notice, 0, nullptr});
  const bool straight = goes_straight(peer, box.notice.total);
  if (is_far(peer) && box.notice.bytes > 0) {
    const auto* const whole = static_cast<const std::byte*>(box.messages[box.next].buffer);
    post_data(peer, straight ? whole : far_slot(peer, Direction::out, box.chunks), box.notice.bytes,
              straight);
  }
  ++box.chunks;
  box.copying = false;
  box.told += box.notice.bytes;
  if (box.told < box.notice.total) return;
  box.told = 0;
  if (box.notice.direct.owner != 0 || straight) {
    box.lent = true;
  } else {
    ++box.next;
  }
}

/// Whether the next chunk of this peer can be copied: its notice is here, and from another host itself.
Result<bool> DeviceMessenger::hear(int peer, bool& moved) {
  Inbox& box = in(peer);
  if (!box.told) {
    if (box.noticed == nullptr)
      box.noticed = expect(control_, peer, kNoticeTag, &box.notice, sizeof box.notice);
    auto heard = arrived(control_, box.noticed);
    if (!heard.ok() || !*heard) return heard;
    moved = box.told = true;
    const DeviceMessage& message = box.messages[box.next];
    LOCKSTEP_RETURN_IF_ERROR(check(peer, box.notice, message));
    if (is_far(peer) && box.notice.bytes > 0) {
      void* const to =
          goes_straight(peer, message.bytes) ? message.buffer : far_slot(peer, Direction::in, box.chunks);
      box.data = expect(far_mail(), peer, kDataTag, to, box.notice.bytes);
    }
  }
  if (box.data == nullptr) return true;
  auto here = arrived(far_mail(), box.data);
  if (here.ok()) moved |= *here;
  return here;
}

Status DeviceMessenger::receive_next(int peer, bool& moved, bool& copied) {
  Inbox& box = in(peer);
  if (box.next == box.messages.size()) return {};
  auto heard = hear(peer, moved);
  if (!heard.ok()) return heard.status();
  if (!*heard) return {};
  const DeviceMessage& message = box.messages[box.next];
  if (box.notice.bytes > 0 && !goes_straight(peer, box.notice.total)) {
    Result<std::byte*> from =
        is_far(peer) ? far_slot(peer, Direction::in, box.chunks) : slot(peer, self_, box.chunks);
    if (box.notice.direct.owner != 0)
      from = buffers_.resolve(near(peer), box.notice.direct, box.notice.bytes);
    if (!from.ok()) return from.status();
    copied = true;
    auto* const to = static_cast<std::byte*>(message.buffer) + box.received;
    LOCKSTEP_RETURN_IF_ERROR(copier_.copy(to, *from, box.notice.bytes));
  }
  box.copying = true;
  return {};
}

Status DeviceMessenger::check(int peer, const Notice& notice, const DeviceMessage& message) const {
  if (notice.total != message.bytes) {
    return Status(ErrorCode::mismatch,
                  control_.who(peer) + " sends " + std::to_string(notice.total) + " bytes, but " +
                      control_.who(self_) + " receives " + std::to_string(message.bytes),
                  peer);
  }
  if (notice.offset > notice.total || notice.bytes > notice.total - notice.offset ||
      (goes_straight(peer, notice.total) ? notice.bytes != notice.total
                                         : notice.direct.owner == 0 && notice.bytes > chunk_bytes(peer)) ||
      (notice.direct.owner != 0 && is_far(peer))) {
    return Status(ErrorCode::internal, control_.who(peer) + " tells of a chunk that is not in its message",
                  peer);
  }
  return {};
}

/// The chunk is in the receiver's buffer: its slot is free.
void DeviceMessenger::take(int peer) {
  Inbox& box = in(peer);
  ++box.chunks;
  box.copying = box.told = false;
  post(peer, kAcknowledgementTag, {{}, box.chunks, nullptr});
  box.received += box.notice.bytes;
  if (box.received < box.notice.total) return;
  box.received = 0;
  ++box.next;
}

bool DeviceMessenger::finished() const {
  const auto done = [](const auto& box) { return box.next == box.messages.size(); };
  return std::all_of(out_.begin(), out_.end(), done) && std::all_of(in_.begin(), in_.end(), done) &&
         std::none_of(outgoing_.begin(), outgoing_.end(),
                      [](const Outgoing& message) { return message.from_buffer; });
}

Status DeviceMessenger::wait_a_moment(Nanos end) {
  const Nanos now = control_.env().now();
  if (end != kForever && now >= end) return late();
  for (int peer = 0; peer < size(); ++peer) {
    Operation* const words = in(peer).noticed != nullptr ? in(peer).noticed : out(peer).acknowledgement;
    if (words == nullptr && in(peer).data == nullptr) continue;
    if (in(peer).data != nullptr) {
      far_mail().wait(*in(peer).data, kMoment);
    } else {
      control_.wait(*words, kMoment);
    }
    return {};
  }
  control_.step();
  if (areas_.straight != nullptr) areas_.straight->step();
  return {};
}

Status DeviceMessenger::late() const {
  const std::string passed = "the deadline of messages of " + control_.who(self_) + " passed; it waits for ";
  const DeviceMessage* const one = unfinished(-1);
  if (one == nullptr) return Status(ErrorCode::timeout, passed + "nobody");
  return Status(ErrorCode::timeout,
                passed + (one->is_send ? "a receive of " : "a send of ") + control_.who(one->peer),
                one->peer);
}

const DeviceMessage* DeviceMessenger::unfinished(int peer) const {
  for (int one = 0; one < static_cast<int>(in_.size()); ++one) {
    if (peer >= 0 && one != peer) continue;
    const Inbox& from = in_[static_cast<std::size_t>(one)];
    const Outbox& to = out_[static_cast<std::size_t>(one)];
    if (from.next < from.messages.size()) return &from.messages[from.next];
    if (to.next < to.messages.size()) return &to.messages[to.next];
  }
  return nullptr;
}

Status DeviceMessenger::fail(Status why) {
  control_.request_revoke(why);
  if (areas_.straight != nullptr) areas_.straight->request_revoke(why);
  copier_.let_end();
  return why;
}

// ---- small messages ----

Operation* DeviceMessenger::expect(Engine& engine, int peer, int tag, void* bytes, std::size_t size) {
  return engine.start(Message{false, bytes, size, DataType::u8, peer, tag, 0, true});
}

void DeviceMessenger::post(int peer, int tag, Outgoing message) {
  Outgoing& kept = outgoing_.emplace_back(message);
  const bool notice = tag == kNoticeTag;
  void* const bytes = notice ? static_cast<void*>(&kept.notice) : &kept.taken;
  const std::size_t size = notice ? sizeof kept.notice : sizeof kept.taken;
  kept.operation = control_.start(Message{true, bytes, size, DataType::u8, peer, tag, 0, true});
}

/// The peer acknowledges it before its slot, or its buffer, is used again.
void DeviceMessenger::post_data(int peer, const std::byte* data, std::size_t bytes, bool from_buffer) {
  Outgoing& kept = outgoing_.emplace_back();
  kept.is_data = true;
  kept.from_buffer = from_buffer;
  kept.operation = far_mail().start(
      Message{true, const_cast<std::byte*>(data), bytes, DataType::u8, peer, kDataTag, 0, true});
}

/// Whether the operation ended, which is then forgotten; false where there is none.
Result<bool> DeviceMessenger::arrived(Engine& engine, Operation*& operation) {
  if (operation == nullptr || !engine.test(*operation)) return false;
  Status status = operation->status;
  engine.release(std::exchange(operation, nullptr));
  if (!status.ok()) return status;
  return true;
}

}  // namespace lockstep::internal
