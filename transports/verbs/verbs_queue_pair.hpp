// VerbsQueuePair: a reliable connection to one peer: its state, and what is under way on it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "transports/verbs/queue_sizes.hpp"
#include "transports/verbs/verbs_device.hpp"

namespace lockstep::internal {

class VerbsQueuePair {
 public:
  /// What a request was for, told when it is over.
  using Done = std::function<void()>;

  static Result<std::unique_ptr<VerbsQueuePair>> make(std::shared_ptr<VerbsDevice> device, int peer,
                                                      ibv_cq* queue, ibv_srq* receives,
                                                      std::uint32_t first_packet, const QueueSizes& sizes);
  ~VerbsQueuePair();
  VerbsQueuePair(const VerbsQueuePair&) = delete;
  VerbsQueuePair& operator=(const VerbsQueuePair&) = delete;

  QueuePairAddress address() const { return {device_->address(), pair_->qp_num, first_packet_}; }
  /// Ready to receive and to send. The peer may not be yet: see that all are before anything is sent.
  Status connect(const QueuePairAddress& peer);

  int peer() const { return peer_; }
  std::uint32_t number() const { return pair_->qp_num; }
  std::uint32_t inline_bytes() const { return inline_bytes_; }
  bool room() const { return budget_.room(); }
  /// There was room. `signal`: a completion is wanted for this one. `done` is called when it is over.
  Status post(ibv_send_wr& request, bool signal, Done done);
  /// A completion came for this queue pair.
  void complete(const ibv_wc& completion);
  bool idle() const { return budget_.under_way() == 0; }

  /// Nothing moves any more, and peers' writes are refused.
  void cut(Status why);
  const Status& failure() const { return failure_; }

 private:
  VerbsQueuePair(std::shared_ptr<VerbsDevice> device, int peer, std::uint32_t depth)
      : device_(std::move(device)), peer_(peer), budget_(depth) {}
  Status change(ibv_qp_attr& attributes, int mask, const char* what);
  Status initialise();

  const std::shared_ptr<VerbsDevice> device_;
  const int peer_;
  ibv_qp* pair_ = nullptr;
  std::uint32_t first_packet_ = 0;
  std::uint32_t inline_bytes_ = 0;
  SendBudget budget_;
  std::deque<Done> under_way_;
  Status failure_;
};

}  // namespace lockstep::internal
