// VerbsFabric: the queue pairs of one communicator, with one completion queue and one shared receive queue
// for all of them, as a Fabric.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transports/fabric/fabric.hpp"
#include "transports/verbs/registrations.hpp"
#include "transports/verbs/verbs_queue_pair.hpp"

namespace lockstep::internal {

/// What arrived over one channel of one peer.
struct VerbsInbox {
  std::deque<Arrival> messages;
  std::uint64_t landed = 0;
  bool has_wire = false;
};

class VerbsFabric final : public Fabric {
 public:
  /// `random` numbers the first packets.
  static Result<std::unique_ptr<VerbsFabric>> make(std::shared_ptr<VerbsDevice> device, int rank, int size,
                                                   Env& env);
  ~VerbsFabric() override;

  /// This rank's ends of the connections, for all peers.
  std::string addresses() const;
  /// Everybody's; connects.
  Status meet(const std::vector<std::string>& addresses);

  std::string_view name() const override { return "verbs"; }
  Result<std::unique_ptr<Wire>> wire(int peer, Channel channel) override;
  std::optional<std::pair<int, Channel>> caller() override;
  bool progress() override;
  int descriptor() const override { return events_->fd; }
  void arm() override;
  bool flushed() override;
  Result<std::span<std::byte>> bounce_memory(std::size_t bytes) override { return memory_.allocate(bytes); }
  bool direct(const void* memory, std::size_t bytes) override {
    return memory_.find(memory, bytes) != nullptr;
  }

  Registrations& memory() { return memory_; }
  const QueueSizes& sizes() const { return sizes_; }
  VerbsInbox& inbox(int peer, Channel channel) {
    return inboxes_[static_cast<std::size_t>(peer) * 2 + static_cast<std::size_t>(channel)];
  }
  /// Makes a receive slot ready for the next message.
  void post(std::uint32_t slot);

 private:
  VerbsFabric(std::shared_ptr<VerbsDevice> device, int rank, int size, const QueueSizes& sizes)
      : device_(device),
        memory_(device),
        rank_(rank),
        sizes_(sizes),
        inboxes_(static_cast<std::size_t>(size) * 2) {}
  Status open_queues();
  void received(const ibv_wc& completion);
  void drain_events();

  const std::shared_ptr<VerbsDevice> device_;
  Registrations memory_;
  const int rank_;
  const QueueSizes sizes_;
  ibv_comp_channel* events_ = nullptr;
  ibv_cq* queue_ = nullptr;
  ibv_srq* receives_ = nullptr;
  std::span<std::byte> slots_;
  std::uint32_t slots_key_ = 0;
  std::vector<std::unique_ptr<VerbsQueuePair>> pairs_;  // Index = rank; this rank's own is null.
  std::map<std::uint32_t, VerbsQueuePair*> by_number_;
  std::vector<VerbsInbox> inboxes_;
};

}  // namespace lockstep::internal
