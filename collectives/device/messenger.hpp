// DeviceMessenger: sends and receives between devices.
//
// The sender tells the receiver in a small message over the host communicator where a chunk lies: whole in
// its own registered buffer, or in one of the two slots that its staging area has for this receiver. The
// receiver copies it from there and acknowledges, which frees the slot. So a send that fits the slots ends
// without its receiver; no stream and no kernel waits for another rank. To another host the chunk itself
// follows its notice, from a slot in pinned memory to one of the receiver's. Where a fabric reaches the
// memory of devices the slots are there, and a large message goes straight from its buffer to the receiver's.
#pragma once

#include <list>
#include <span>
#include <vector>

#include "collectives/device/copier.hpp"
#include "collectives/device/device_task.hpp"
#include "collectives/device/shared_buffers.hpp"
#include "collectives/engine/engine.hpp"

namespace lockstep::internal {

/// Where chunks wait for their receivers.
struct MessageAreas {
  std::vector<int> near;              ///< Of every rank its number among those of this host, or -1.
  std::vector<std::byte*> by_member;  ///< The areas of those, as this rank's device addresses them.
  std::size_t bytes = 0;              ///< Of each.
  std::span<std::byte> far;           ///< Memory for what comes from other hosts and goes there: pinned,
  Engine* straight = nullptr;         ///< or of the device, where this engine moves messages between devices.
  bool lends = true;  ///< Receivers map large registered buffers, which takes calls to the driver.
};

class DeviceMessenger {
 public:
  /// All outlive it. `control` carries nothing else; run() is called where `copier` may be used.
  DeviceMessenger(Copier& copier, Engine& control, SharedBuffers& buffers, MessageAreas areas);
  ~DeviceMessenger();

  /// Blocks until all messages are sent and received, or one of them failed: then `control` is revoked.
  /// Messages to the own rank have their receive among them.
  Status run(std::span<const DeviceMessage> messages, Nanos timeout);
  /// Of a run that failed: the message that it was at, of those with `peer` (-1: with anybody); null: none.
  const DeviceMessage* unfinished(int peer) const;

 private:
  /// Where a chunk lies, and which part of its message it is.
  struct Notice {
    std::uint64_t total = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    SegmentRef direct;  ///< owner 0: in the slot whose turn it is.
  };
  /// A small message on its way.
  struct Outgoing {
    Notice notice;
    std::uint64_t taken = 0;
    Operation* operation = nullptr;
    bool is_data = false;
    bool from_buffer = false;  ///< The caller's: its message is not over before.
  };
  /// One direction of the traffic with a peer. `chunks` rises for ever: chunk k is in slot k modulo kSlots.
  struct Outbox {
    std::vector<DeviceMessage> messages;  ///< Of the run, in order.
    std::size_t next = 0;                 ///< The first that is not done.
    std::uint64_t told = 0;               ///< Bytes of it that the peer knows of.
    std::uint64_t chunks = 0, freed = 0;  ///< Told of; acknowledged.
    bool copying = false;                 ///< `notice` is to be sent when the copy is done.
    bool lent = false;                    ///< The peer reads the message's own buffer.
    Notice notice;
    std::uint64_t acknowledged = 0;  ///< Where the next acknowledgement arrives.
    Operation* acknowledgement = nullptr;
  };
  struct Inbox {
    std::vector<DeviceMessage> messages;
    std::size_t next = 0;
    std::uint64_t received = 0;  ///< Bytes of it.
    std::uint64_t chunks = 0;    ///< Copied.
    bool copying = false;
    Notice notice;  ///< Where the next one arrives, or of the chunk that is taken.
    Operation* noticed = nullptr;
    bool told = false;          ///< `notice` is here;
    Operation* data = nullptr;  ///< what it tells of is on its way from another host.
  };

  Status copy_own();
  Status advance(bool& moved);
  bool may_send(int peer);
  Status send_next(int peer, bool& moved, bool& copied);
  Status begin_chunk(int peer, bool& copied);
  Status receive_next(int peer, bool& moved, bool& copied);
  Result<bool> hear(int peer, bool& moved);
  Status check(int peer, const Notice& notice, const DeviceMessage& message) const;
  void tell(int peer);
  void take(int peer);
  bool finished() const;
  Status wait_a_moment(Nanos end);
  Status late() const;
  Status fail(Status why);

  Operation* expect(Engine& engine, int peer, int tag, void* bytes, std::size_t size);
  void post(int peer, int tag, Outgoing message);
  void post_data(int peer, const std::byte* data, std::size_t bytes, bool from_buffer);
  static Result<bool> arrived(Engine& engine, Operation*& operation);
  std::byte* slot(int owner, int reader, std::uint64_t chunk) const;
  enum class Direction : std::uint8_t { out, in };
  std::byte* far_slot(int peer, Direction direction, std::uint64_t chunk) const;
  int near(int peer) const { return areas_.near[static_cast<std::size_t>(peer)]; }
  bool is_far(int peer) const { return near(peer) < 0; }
  /// Whether a message needs no slot on its way to or from another host.
  bool goes_straight(int peer, std::uint64_t bytes) const;
  /// What moves the chunks of other hosts.
  Engine& far_mail() { return areas_.straight != nullptr ? *areas_.straight : control_; }
  Engine& mail_of(const Outgoing& message) { return message.is_data ? far_mail() : control_; }
  std::size_t chunk_bytes(int peer) const { return is_far(peer) ? far_slot_bytes_ : slot_bytes_; }
  Outbox& out(int peer) { return out_[static_cast<std::size_t>(peer)]; }
  Inbox& in(int peer) { return in_[static_cast<std::size_t>(peer)]; }
  int size() const { return static_cast<int>(out_.size()); }

  Copier& copier_;
  Engine& control_;
  const int self_;
  SharedBuffers& buffers_;
  const MessageAreas areas_;
  std::size_t slot_bytes_ = 0, far_slot_bytes_ = 0;
  std::vector<Outbox> out_;
  std::vector<Inbox> in_;
  std::list<Outgoing> outgoing_;
};

}  // namespace lockstep::internal
