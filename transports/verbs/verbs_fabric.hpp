// VerbsFabric: the queue pairs of one communicator, with one completion queue and one shared receive queue
// for all of them, as a Fabric. A pair is connected when one of the two ranks first wants the other.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "transports/fabric/fabric.hpp"
#include "transports/fabric/registrations.hpp"
#include "transports/verbs/address_swap.hpp"
#include "transports/verbs/verbs_meeting.hpp"
#include "transports/verbs/verbs_queue_pair.hpp"

namespace lockstep::internal {

/// What arrived over one channel of one peer.
struct VerbsInbox {
  std::deque<Arrival> messages;
  std::uint32_t held = 0;                // Receive slots, of these messages and of those being read.
  std::uint64_t opened = 0, landed = 0;  // Landings.
  bool has_wire = false;
};

class VerbsFabric final : public Fabric {
 public:
  /// `random` numbers the first packets.
  static Result<std::unique_ptr<VerbsFabric>> make(std::shared_ptr<VerbsDevice> device,
                                                   std::unique_ptr<VerbsMeeting> meeting, int size, Env& env);
  ~VerbsFabric() override;

  /// Peers to which a queue pair leads.
  std::size_t connected() const { return by_number_.size(); }

  std::string_view name() const override { return "verbs"; }
  Result<std::unique_ptr<Wire>> wire(int peer, Channel channel) override;
  std::optional<std::pair<int, Channel>> caller() override;
  bool progress() override;
  int descriptor() const override { return events_->fd; }
  void arm() override;
  bool connecting() override;
  int connections() const override { return meeting_->descriptor(); }
  bool flushed() override;
  void close() override { meeting_->close(); }
  Result<std::span<std::byte>> bounce_memory(std::size_t bytes) override { return memory_.allocate(bytes); }
  bool direct(const void* memory, std::size_t bytes) override {
    return memory_.find(memory, bytes) != nullptr;
  }

  Registrations<ibv_mr>& memory() { return memory_; }
  const QueueSizes& sizes() const { return sizes_; }
  VerbsInbox& inbox(int peer, Channel channel) {
    return inboxes_[static_cast<std::size_t>(peer) * kChannels + static_cast<std::size_t>(channel)];
  }
  /// Makes a receive slot ready for the next message.
  void post(std::uint32_t slot);

 private:
  struct Peer {
    bool wanted = false;
    std::optional<AddressSwap> swap;       // While the pair is being connected.
    std::unique_ptr<VerbsQueuePair> pair;  // Null before that.
    bool receives = false;                 // The peer's address is known: the pair is able to receive, and
    bool usable = false;                   // to be sent to: so is the peer's.
    Status failure;
  };
  struct Slots {  // For what one more peer may send.
    std::span<std::byte> memory;
    std::uint32_t key;
  };
  VerbsFabric(std::shared_ptr<VerbsDevice> device, std::unique_ptr<VerbsMeeting> meeting, int size,
              const QueueSizes& sizes, Env& env)
      : device_(device),
        meeting_(std::move(meeting)),
        memory_([device](void* memory, std::size_t bytes) {
          return device->register_memory(memory, bytes, true);
        }),
        sizes_(sizes),
        env_(env),
        peers_(static_cast<std::size_t>(size)),
        inboxes_(static_cast<std::size_t>(size) * kChannels) {}
  Status open_queues();
  Status add_slots();
  bool meet();
  Status begin(int peer, Fd socket);
  Status go_on(Peer& peer);
  std::byte* memory_of(std::uint32_t slot) const;
  void received(const ibv_wc& completion);
  void drain_events();

  const std::shared_ptr<VerbsDevice> device_;
  const std::unique_ptr<VerbsMeeting> meeting_;
  Registrations<ibv_mr> memory_;
  const QueueSizes sizes_;
  Env& env_;
  ibv_comp_channel* events_ = nullptr;
  ibv_cq* queue_ = nullptr;
  ibv_srq* receives_ = nullptr;
  std::vector<Slots> slots_;
  std::vector<Peer> peers_;    // Index = rank.
  std::deque<int> under_way_;  // Peers that are being connected.
  std::map<std::uint32_t, VerbsQueuePair*> by_number_;
  std::vector<VerbsInbox> inboxes_;
};

}  // namespace lockstep::internal
