// UcxWire: small messages and transfers to one peer as tagged UCP messages, or transfers as puts
// (ucx_transfers.cpp). Every receive is posted, with the exact tag, before its message is sent, so UCX never
// keeps a copy.
#pragma once

#include <deque>
#include <vector>

#include "transports/fabric/limits.hpp"
#include "transports/ucx/ucx_worker.hpp"

namespace lockstep::internal {

class UcxWire final : public Wire {
 public:
  /// Receive slots, and as many to send from.
  static constexpr std::size_t kMemoryBytes = 2 * kLinkSlots * kSlotBytes;

  UcxWire(UcxWorker& worker, UcxPeer& peer, Channel channel, std::span<std::byte> memory);
  ~UcxWire() override;

  Result<bool> send(std::span<const std::byte> head, std::span<const std::byte> body) override;
  std::optional<Arrival> next() override;
  void release(const Arrival& arrival) override { post(arrival.slot); }
  Status open_landing(std::span<std::byte> memory, bool may_take_back, Landing& landing) override;
  std::size_t take_back(std::size_t most) override;
  std::uint64_t landed() override;
  Result<bool> fill(const Landing& landing, std::span<const std::byte> memory) override;
  std::uint64_t filled() override;
  void cut(Status why) override;
  const Status& failure() const override { return peer_.failure; }
  bool unfinished() override;

 private:
  struct Pending {
    std::uint32_t slot;
    void* request;  // nullptr: over.
  };
  enum class State { pending, over, failed };

  struct Open {  // A landing.
    void* request;
    std::shared_ptr<UcxRegion> region;  // Of its memory; null: not mapped.
    std::uint64_t number;
    bool put;  // The peer writes to it: only the end of the connection stops that.
  };
  struct Filling {
    void* request;
    std::shared_ptr<UcxRegion> region;
    UcxRemoteKey key;  // Not null: a put, whose end the peer has not been told.
    std::uint64_t number;
  };

  std::byte* receive_slot(std::uint32_t slot) { return memory_.data() + slot * kSlotBytes; }
  std::byte* send_slot(std::uint32_t slot) { return receive_slot(slot + kLinkSlots); }
  void post(std::uint32_t slot);
  ucp_request_param_t params_of(const void* memory, const UcxRegion* region) const;
  void* receive(std::span<std::byte> memory, ucp_tag_t tag, const UcxRegion* region = nullptr);
  void* send_transfer(std::span<const std::byte> memory, std::uint64_t number, const UcxRegion* region);
  void begin_put(const Landing& landing, std::span<const std::byte> memory, Filling& filling);
  State state_of(void*& request, std::size_t* bytes = nullptr);
  void fail(ucs_status_t status);
  void retire_sends();
  void cancel(void* request);
  void let_go(void* request);

  UcxWorker& worker_;
  const UcxLibrary& ucx_;
  UcxPeer& peer_;
  const Channel channel_;
  const std::span<std::byte> memory_;  // The worker's: UCX may touch it until the worker ends.
  std::uint64_t next_send_ = 0, next_receive_ = 0, next_landing_ = 0;
  std::deque<Pending> receiving_;  // In order of their tags.
  std::deque<Pending> sending_;    // In order.
  std::deque<std::uint32_t> free_send_slots_;
  std::deque<Open> landings_;      // In order.
  std::deque<Filling> fillings_;   // In order.
  std::vector<void*> taken_back_;  // Receives without room in the place of landings that were closed.
  std::uint64_t landed_ = 0, filled_ = 0;
};

}  // namespace lockstep::internal
