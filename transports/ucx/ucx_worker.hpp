// UcxWorker: one UCP worker with its endpoints, as a Fabric. One communicator has one worker, so that each is
// driven under its own engine's lock.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "lib/net/abstract_socket.hpp"
#include "transports/fabric/fabric.hpp"
#include "transports/fabric/registrations.hpp"
#include "transports/ucx/ucx_peer.hpp"
#include "transports/ucx/ucx_region.hpp"

namespace lockstep::internal {

/// What a tag says. Tags are exact: every message has its own.
struct UcxTag {
  enum class Kind : std::uint64_t { message = 0, transfer = 1 };
  static constexpr int kNumberBits = 40, kKindBits = 1, kChannelBits = 2;
  static constexpr ucp_tag_t of(int sender, Channel channel, Kind kind, std::uint64_t number) {
    return (((static_cast<ucp_tag_t>(sender) << kChannelBits | static_cast<ucp_tag_t>(channel)) << kKindBits |
             static_cast<ucp_tag_t>(kind))
            << kNumberBits) |
           (number & ((ucp_tag_t{1} << kNumberBits) - 1));
  }
  static constexpr int sender(ucp_tag_t tag) {
    return static_cast<int>(tag >> (kNumberBits + kKindBits + kChannelBits));
  }
  static constexpr Channel channel(ucp_tag_t tag) {
    return static_cast<Channel>((tag >> (kNumberBits + kKindBits)) & ((1 << kChannelBits) - 1));
  }
  /// Selects kind and number.
  static constexpr ucp_tag_t kAnyLink = (ucp_tag_t{1} << (kNumberBits + kKindBits)) - 1;
};

class UcxWorker final : public Fabric {
 public:
  static Result<std::unique_ptr<UcxWorker>> make(std::shared_ptr<UcxContext> context, int rank,
                                                 ucs_memory_type_t payloads);
  ~UcxWorker() override;

  /// For the peers.
  Result<UcxIdentity> identity() const;
  /// The next rank, from 0 on. Its life sign counts where it can be seen: who is on another host shows it to
  /// others. `watched`: UCX is to tell of its failure.
  void add_peer(UcxIdentity identity, bool watched);

  std::string_view name() const override { return "ucx"; }
  Result<std::unique_ptr<Wire>> wire(int peer, Channel channel) override;
  std::optional<std::pair<int, Channel>> caller() override;
  bool progress() override;
  int descriptor() const override { return descriptor_; }
  void arm() override;
  bool flushed() override;
  void look_for_leavers() override;
  void close() override { life_sign_.reset(); }
  Result<std::span<std::byte>> bounce_memory(std::size_t bytes) override;
  bool direct(const void*, std::size_t) override { return true; }
  bool in_one_order() const override { return true; }  // One endpoint carries all channels.
  bool takes_back() const override { return true; }

  const UcxLibrary& ucx() const { return context_->ucx; }
  ucp_worker_h handle() const { return worker_; }
  Registrations<UcxRegion>& memory() { return memory_; }
  int rank() const { return rank_; }
  /// Of a transfer's memory, as UCX is to be told; UNKNOWN: it finds out.
  ucs_memory_type_t type_of(const void* memory) const;
  /// Fails the endpoint: UCX lets go of all memory of its requests.
  void cut(UcxPeer& peer, Status why);
  /// From now on nothing moves: no memory is touched any more.
  void stop() { stopped_ = true; }

 private:
  UcxWorker(std::shared_ptr<UcxContext> context, int rank, ucs_memory_type_t payloads, LifeSign life_sign)
      : context_(context),
        rank_(rank),
        payloads_(payloads),
        life_sign_(std::move(life_sign)),
        memory_(
            [context](void* memory, std::size_t bytes) { return UcxRegion::map(context, memory, bytes); }) {}
  Status connect(UcxPeer& peer);
  Status create_endpoint(UcxPeer& peer);
  ucs_status_t open_endpoint(UcxPeer& peer);
  std::optional<std::pair<int, Channel>> first_message(ucp_tag_t tag, ucp_tag_t mask) const;
  bool may_call(int sender, Channel channel) const;
  void find_what_arrived();
  void close_by_force(UcxPeer& peer);
  bool end_left_overs();
  std::span<std::byte> plain_memory(std::size_t bytes);

  std::shared_ptr<UcxContext> context_;
  const int rank_;
  const ucs_memory_type_t payloads_;
  std::optional<LifeSign> life_sign_;  // While peers that call are answered.
  ucp_worker_h worker_ = nullptr;
  int descriptor_ = -1;
  std::deque<UcxPeer> peers_;  // Index = rank; UCX points to them.
  Registrations<UcxRegion> memory_;
  std::vector<std::unique_ptr<std::byte[]>> plain_;
  std::vector<std::span<std::byte>> lent_;  // All memory of the worker's own, mapped and plain.
  void* flush_ = nullptr;
  ucp_worker_h stand_in_ = nullptr;  // For peers that have left; see find_what_arrived().
  UcxPeer to_stand_in_;
  bool stopped_ = false;
};

}  // namespace lockstep::internal
