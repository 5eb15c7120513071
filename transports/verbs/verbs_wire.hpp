// VerbsWire: one channel to one peer. Messages are sends into the peer's shared receive queue; a transfer is
// a chain of RDMA writes, the last of which tells the peer.
#pragma once

#include <deque>

#include "transports/verbs/verbs_fabric.hpp"

namespace lockstep::internal {

class VerbsWire final : public Wire {
 public:
  static Result<std::unique_ptr<VerbsWire>> make(VerbsFabric& fabric, VerbsQueuePair& pair, Channel channel);

  Result<bool> send(std::span<const std::byte> head, std::span<const std::byte> body) override;
  std::optional<Arrival> next() override;
  void release(const Arrival& arrival) override {
    --inbox_.held;
    fabric_.post(arrival.slot);
  }
  Status open_landing(std::span<std::byte> memory, bool may_take_back, Landing& landing) override;
  std::uint64_t landed() override;
  Result<bool> fill(const Landing& landing, std::span<const std::byte> memory) override;
  std::uint64_t filled() override;
  void cut(Status why) override { pair_.cut(std::move(why)); }
  const Status& failure() const override { return pair_.failure(); }
  bool unfinished() override { return !filling_.empty() && failure().ok(); }

 private:
  struct Filling {
    std::uint64_t address;  // There.
    std::uint32_t key;
    std::span<const std::byte> memory;  // Here.
    std::shared_ptr<ibv_mr> region;     // Of the memory; null: it passes through the stages.
    std::uint64_t posted;               // Bytes.
  };
  VerbsWire(VerbsFabric& fabric, VerbsQueuePair& pair, Channel channel)
      : fabric_(fabric), pair_(pair), channel_(channel), inbox_(fabric.inbox(pair.peer(), channel)) {}
  Status open_stages();
  Status write_on();
  Result<bool> write_part(Filling& filling);

  VerbsFabric& fabric_;
  VerbsQueuePair& pair_;
  const Channel channel_;
  VerbsInbox& inbox_;
  std::span<std::byte> slots_;  // To send from.
  std::uint32_t slots_key_ = 0;
  std::deque<std::byte*> free_slots_;
  std::span<std::byte> stages_;  // Empty until memory that is not registered is sent.
  std::uint32_t stages_key_ = 0;
  std::deque<std::byte*> free_stages_;
  std::deque<Filling> filling_;               // Not wholly posted, in order.
  std::deque<std::shared_ptr<ibv_mr>> open_;  // Where the landings lie that are not filled, in order.
  std::uint64_t filled_ = 0;
};

}  // namespace lockstep::internal
