#include "transports/verbs/verbs_queue_pair.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "transports/verbs/limits.hpp"

namespace lockstep::internal {

Result<std::unique_ptr<VerbsQueuePair>> VerbsQueuePair::make(std::shared_ptr<VerbsDevice> device, int peer,
                                                             ibv_cq* queue, ibv_srq* receives,
                                                             std::uint32_t first_packet,
                                                             const QueueSizes& sizes) {
  std::unique_ptr<VerbsQueuePair> made(new VerbsQueuePair(std::move(device), peer, sizes.sends));
  for (const std::uint32_t inline_bytes : kInlineBytes) {
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = queue;
    wanted.srq = receives;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap.max_send_wr = sizes.sends;
    wanted.cap.max_send_sge = 1;
    wanted.cap.max_inline_data = inline_bytes;
    made->pair_ = made->device_->verbs().create_qp(made->device_->domain(), &wanted);
    made->inline_bytes_ = std::min(inline_bytes, wanted.cap.max_inline_data);
    if (made->pair_ != nullptr) break;  // Not every driver says what it refused.
  }
  if (made->pair_ == nullptr) return system_error("creating an RDMA queue pair", errno);
  made->first_packet_ = first_packet & 0xffffff;
  LOCKSTEP_RETURN_IF_ERROR(made->initialise());
  return made;
}

VerbsQueuePair::~VerbsQueuePair() {
  if (pair_ != nullptr) device_->verbs().destroy_qp(pair_);
}

Status VerbsQueuePair::change(ibv_qp_attr& attributes, int mask, const char* what) {
  const int error = device_->verbs().modify_qp(pair_, &attributes, mask);
  if (error == 0) return {};
  return Status(ErrorCode::system,
                std::string("RDMA: cannot make the connection to rank ") + std::to_string(peer_) + " " +
                    what + ": " + std::strerror(error) +
                    "; see that both ends' LOCKSTEP_VERBS_DEVICE are on one network",
                peer_);
}

Status VerbsQueuePair::initialise() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = device_->port();
  attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  return change(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "ready");
}

Status VerbsQueuePair::connect(const QueuePairAddress& peer) {
  ibv_qp_attr receive{};
  receive.qp_state = IBV_QPS_RTR;
  receive.path_mtu = static_cast<ibv_mtu>(std::min(peer.port.mtu, device_->address().mtu));
  receive.dest_qp_num = peer.number;
  receive.rq_psn = peer.first_packet;
  receive.min_rnr_timer = kReceiverNotReadyTimer;
  receive.ah_attr.dlid = peer.port.lid;
  receive.ah_attr.port_num = device_->port();
  if (peer.port.routed != 0 || device_->address().routed != 0) {
    receive.ah_attr.is_global = 1;
    receive.ah_attr.grh.hop_limit = 64;
    receive.ah_attr.grh.sgid_index = device_->gid_index();
    std::copy(peer.port.gid.begin(), peer.port.gid.end(), receive.ah_attr.grh.dgid.raw);
  }
  LOCKSTEP_RETURN_IF_ERROR(change(receive,
                                  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                      IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                                  "able to receive"));
  ibv_qp_attr send{};
  send.qp_state = IBV_QPS_RTS;
  send.timeout = device_->timeout();
  send.retry_cnt = kRetries;
  send.rnr_retry = kReceiverNotReadyRetries;
  send.sq_psn = first_packet_;
  return change(send,
                IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                    IBV_QP_MAX_QP_RD_ATOMIC,
                "able to send");
}

Status VerbsQueuePair::post(ibv_send_wr& request, bool signal, Done done) {
  if (!failure_.ok()) return failure_;
  request.wr_id = pair_->qp_num;
  if (budget_.post(signal)) request.send_flags |= IBV_SEND_SIGNALED;
  under_way_.push_back(std::move(done));
  ibv_send_wr* refused = nullptr;
  const int error = ibv_post_send(pair_, &request, &refused);
  if (error == 0) return {};
  cut(system_error("RDMA: posting a request to rank " + std::to_string(peer_), error));
  return failure_;
}

void VerbsQueuePair::complete(const ibv_wc& completion) {
  if (completion.status != IBV_WC_SUCCESS) {
    return cut(Status(ErrorCode::peer_lost,
                      "rank " + std::to_string(peer_) +
                          " is gone: RDMA says: " + device_->verbs().wc_status_str(completion.status),
                      peer_));
  }
  for (std::uint32_t retired = budget_.complete(); retired > 0 && !under_way_.empty(); --retired) {
    const Done done = std::move(under_way_.front());
    under_way_.pop_front();
    if (done) done();
  }
}

// What was under way is not told to be over: whoever waits for it looks at failure().
void VerbsQueuePair::cut(Status why) {
  if (!failure_.ok()) return;
  failure_ = std::move(why);
  under_way_.clear();
  budget_.clear();
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  static_cast<void>(device_->verbs().modify_qp(pair_, &attributes, IBV_QP_STATE));
}

}  // namespace lockstep::internal
