// Collectives and messages: each call becomes one of the DeviceCommunicator's, now or at the end of its
// group.

#include "integrations/nccl/arguments.hpp"
#include "integrations/nccl/comm.hpp"
#include "integrations/nccl/group.hpp"
#include "integrations/nccl/result.hpp"
#include "integrations/nccl/types.hpp"

using namespace lockstep::nccl;
using lockstep::DataType;
using lockstep::DeviceCommunicator;

namespace {

/// `call(ranks, type)` for a collective without an operator.
template <typename Call>
ncclResult_t enqueue(const char* function, ncclComm_t comm, ncclDataType_t type, const Arguments& arguments,
                     Call call) noexcept {
  return grouped(function, [&] {
    const auto owner = Handles::find(comm);
    const DataType t = to_type(type);
    check_collective(*owner, t, arguments);
    Group::current().add(owner, [=](DeviceCommunicator& ranks) { call(ranks, t); });
  });
}

/// `call(ranks, type, operator)`. The operator may be destroyed as soon as the function returns.
template <typename Call>
ncclResult_t enqueue(const char* function, ncclComm_t comm, ncclDataType_t type, ncclRedOp_t op,
                     const Arguments& arguments, Call call) noexcept {
  return grouped(function, [&] {
    const auto owner = Handles::find(comm);
    const DataType t = to_type(type);
    const Operator o = owner->operators().find(op, type);
    check_collective(*owner, t, arguments);
    Group::current().add(owner, [=](DeviceCommunicator& ranks) { call(ranks, t, o); });
  });
}

ncclResult_t enqueue(const char* function, ncclComm_t comm, ncclDataType_t type, Message message) noexcept {
  return grouped(function, [&] {
    const auto owner = Handles::find(comm);
    message.type = to_type(type);
    check_message(*owner, message.type, message.buffer, message.count, message.peer);
    Group::current().add(owner, message);
  });
}

}  // namespace

ncclResult_t pncclAllReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return enqueue("ncclAllReduce", comm, datatype, op, {sendbuff, recvbuff, count},
                 [=](auto& ranks, DataType t, const Operator& o) {
                   ranks.all_reduce(sendbuff, recvbuff, count, t, o.op, stream, o.options);
                 });
}
LOCKSTEP_NCCL_ALIAS(AllReduce);

ncclResult_t pncclReduce(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                         ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return enqueue("ncclReduce", comm, datatype, op, {sendbuff, recvbuff, count, root, OnlyRoot::receives},
                 [=](auto& ranks, DataType t, const Operator& o) {
                   ranks.reduce(sendbuff, recvbuff, count, t, o.op, root, stream, o.options);
                 });
}
LOCKSTEP_NCCL_ALIAS(Reduce);

ncclResult_t pncclReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount,
                                ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                cudaStream_t stream) {
  return enqueue("ncclReduceScatter", comm, datatype, op, {sendbuff, recvbuff, recvcount},
                 [=](auto& ranks, DataType t, const Operator& o) {
                   ranks.reduce_scatter(sendbuff, recvbuff, recvcount, t, o.op, stream, o.options);
                 });
}
LOCKSTEP_NCCL_ALIAS(ReduceScatter);

ncclResult_t pncclBroadcast(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                            int root, ncclComm_t comm, cudaStream_t stream) {
  return enqueue(
      "ncclBroadcast", comm, datatype, {sendbuff, recvbuff, count, root, OnlyRoot::sends},
      [=](auto& ranks, DataType t) { ranks.broadcast(sendbuff, recvbuff, count, t, root, stream); });
}
LOCKSTEP_NCCL_ALIAS(Broadcast);

ncclResult_t pncclBcast(void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
                        cudaStream_t stream) {
  return enqueue("ncclBcast", comm, datatype, {buff, buff, count, root},
                 [=](auto& ranks, DataType t) { ranks.broadcast(buff, buff, count, t, root, stream); });
}
LOCKSTEP_NCCL_ALIAS(Bcast);

ncclResult_t pncclAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype,
                            ncclComm_t comm, cudaStream_t stream) {
  return enqueue(
      "ncclAllGather", comm, datatype, {sendbuff, recvbuff, sendcount},
      [=](auto& ranks, DataType t) { ranks.all_gather(sendbuff, recvbuff, sendcount, t, stream); });
}
LOCKSTEP_NCCL_ALIAS(AllGather);

ncclResult_t pncclAlltoAll(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                           ncclComm_t comm, cudaStream_t stream) {
  const Arguments arguments{sendbuff, recvbuff, count};
  if (sendbuff != recvbuff || count == 0) {
    return enqueue("ncclAlltoAll", comm, datatype, arguments,
                   [=](auto& ranks, DataType t) { ranks.all_to_all(sendbuff, recvbuff, count, t, stream); });
  }
  return grouped("ncclAlltoAll", [&] {
    const auto owner = Handles::find(comm);
    const DataType t = to_type(datatype);
    check_collective(*owner, t, arguments);
    Group::current().add(owner, [=](DeviceCommunicator& ranks) {
      owner->in_place().all_to_all(ranks, recvbuff, count, t, stream);
    });
  });
}
LOCKSTEP_NCCL_ALIAS(AlltoAll);

ncclResult_t pncclGather(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                         int root, ncclComm_t comm, cudaStream_t stream) {
  return enqueue("ncclGather", comm, datatype, {sendbuff, recvbuff, count, root, OnlyRoot::receives},
                 [=](auto& ranks, DataType t) { ranks.gather(sendbuff, recvbuff, count, t, root, stream); });
}
LOCKSTEP_NCCL_ALIAS(Gather);

ncclResult_t pncclScatter(const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype,
                          int root, ncclComm_t comm, cudaStream_t stream) {
  return enqueue("ncclScatter", comm, datatype, {sendbuff, recvbuff, count, root, OnlyRoot::sends},
                 [=](auto& ranks, DataType t) { ranks.scatter(sendbuff, recvbuff, count, t, root, stream); });
}
LOCKSTEP_NCCL_ALIAS(Scatter);

ncclResult_t pncclSend(const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                       cudaStream_t stream) {
  return enqueue("ncclSend", comm, datatype, Message{true, sendbuff, count, DataType::u8, peer, stream});
}
LOCKSTEP_NCCL_ALIAS(Send);

ncclResult_t pncclRecv(void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
                       cudaStream_t stream) {
  return enqueue("ncclRecv", comm, datatype, Message{false, recvbuff, count, DataType::u8, peer, stream});
}
LOCKSTEP_NCCL_ALIAS(Recv);

ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                       ncclScalarResidence_t residence, ncclComm_t comm) {
  return guarded("ncclRedOpCreatePreMulSum", [&] {
    ncclRedOp_t& made = required(op, "op");  // first: nobody could destroy one that is not given out
    made = Handles::find(comm)->operators().create_premul(scalar, datatype, residence);
  });
}
LOCKSTEP_NCCL_ALIAS(RedOpCreatePreMulSum);

ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  return guarded("ncclRedOpDestroy", [&] { Handles::find(comm)->operators().destroy(op); });
}
LOCKSTEP_NCCL_ALIAS(RedOpDestroy);

ncclResult_t pncclGroupStart() {
  Group::current().start();
  return ncclSuccess;
}
LOCKSTEP_NCCL_ALIAS(GroupStart);

ncclResult_t pncclGroupEnd() {
  return guarded("ncclGroupEnd", [] { return Group::current().end(); });
}
LOCKSTEP_NCCL_ALIAS(GroupEnd);

// Nothing is started, and nothing is estimated: lockstep has no cost model of devices.
ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t* simInfo) {
  return guarded("ncclGroupSimulateEnd", [&] {
    if (simInfo != nullptr && simInfo->magic == 0x74685283) simInfo->estimatedTime = NCCL_UNDEF_FLOAT;
    if (!Group::current().open()) throw invalid_usage("there was no ncclGroupStart");
    Group::current().discard();
    throw invalid_usage("lockstep does not estimate times of device operations; the group was dropped");
  });
}
LOCKSTEP_NCCL_ALIAS(GroupSimulateEnd);
