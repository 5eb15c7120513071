// The collectives of DeviceCommunicator: the arguments become a CallBuilder.
#include "collectives/device/device_core.hpp"
#include "collectives/forked_child.hpp"

namespace lockstep {

using internal::CallBuilder;
using internal::CallFacts;
using internal::DeviceCore;
using internal::movement;
using internal::reduction;
using Counts = std::span<const std::size_t>;

static void enqueue(DeviceCore& core, CallBuilder call, Stream stream, const DeviceCallOptions& options,
                    const void* copy_from = nullptr) {
  internal::refuse_in_forked_child();
  core.caller().start(std::move(call), stream, options, copy_from).throw_if_error();
}

static void enqueue(DeviceCore& core, const CallFacts& facts, const void* input, void* output, Stream stream,
                    const DeviceCallOptions& options, const void* copy_from = nullptr) {
  enqueue(core, std::move(CallBuilder(facts, core.engine(), options).buffers(input, output)), stream, options,
          copy_from);
}

void DeviceCommunicator::all_reduce(const void* input, void* output, std::size_t count, DataType type,
                                    ReduceOp op, Stream stream, const DeviceCallOptions& options) {
  enqueue(*core_, reduction(Collective::all_reduce, count, type, op), input, output, stream, options);
}

void DeviceCommunicator::reduce(const void* input, void* output, std::size_t count, DataType type,
                                ReduceOp op, int root, Stream stream, const DeviceCallOptions& options) {
  enqueue(*core_, reduction(Collective::reduce, count, type, op, root), input, output, stream, options);
}

/// A broadcast of the programs has one buffer, the output of all: only that lies at the same place of a
/// window on every rank. A root whose input is elsewhere copies it there first.
void DeviceCommunicator::broadcast(const void* input, void* output, std::size_t count, DataType type,
                                   int root, Stream stream, const DeviceCallOptions& options) {
  const bool at_root = rank() == root;
  const bool apart = at_root && input != output && input != nullptr && output != nullptr;
  void* const buffer = at_root && !apart ? const_cast<void*>(input) : output;
  enqueue(*core_, movement(Collective::broadcast, count, type, root), buffer, buffer, stream, options,
          apart ? input : nullptr);
}

void DeviceCommunicator::scatter(const void* input, void* output, std::size_t count, DataType type, int root,
                                 Stream stream, const DeviceCallOptions& options) {
  enqueue(*core_, movement(Collective::scatter, count, type, root), input, output, stream, options);
}

void DeviceCommunicator::gather(const void* input, void* output, std::size_t count, DataType type, int root,
                                Stream stream, const DeviceCallOptions& options) {
  enqueue(*core_, movement(Collective::gather, count, type, root), input, output, stream, options);
}

void DeviceCommunicator::all_gather(const void* input, void* output, std::size_t count, DataType type,
                                    Stream stream, const DeviceCallOptions& options) {
  enqueue(*core_, movement(Collective::all_gather, count, type), input, output, stream, options);
}

void DeviceCommunicator::reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                                        ReduceOp op, Stream stream, const DeviceCallOptions& options) {
  enqueue(*core_, reduction(Collective::reduce_scatter, count, type, op), input, output, stream, options);
}

void DeviceCommunicator::all_to_all(const void* input, void* output, std::size_t count, DataType type,
                                    Stream stream, const DeviceCallOptions& options) {
  enqueue(*core_, movement(Collective::all_to_all, count, type), input, output, stream, options);
}

void DeviceCommunicator::barrier(Stream stream, const DeviceCallOptions& options) {
  enqueue(*core_, CallFacts{.collective = Collective::barrier}, nullptr, nullptr, stream, options);
}

void DeviceCommunicator::scatter_v(const void* input, Counts counts, void* output, std::size_t output_count,
                                   DataType type, int root, Stream stream, const DeviceCallOptions& options) {
  CallBuilder call(Collective::scatter_v, core_->engine(), options);
  call.elements(type, 0).root(root).root_counts(counts, output_count).buffers(input, output);
  enqueue(*core_, std::move(call), stream, options);
}

void DeviceCommunicator::gather_v(const void* input, std::size_t input_count, void* output, Counts counts,
                                  DataType type, int root, Stream stream, const DeviceCallOptions& options) {
  CallBuilder call(Collective::gather_v, core_->engine(), options);
  call.elements(type, 0).root(root).root_counts(counts, input_count).buffers(input, output);
  enqueue(*core_, std::move(call), stream, options);
}

void DeviceCommunicator::all_gather_v(const void* input, void* output, Counts counts, DataType type,
                                      Stream stream, const DeviceCallOptions& options) {
  CallBuilder call(Collective::all_gather_v, core_->engine(), options);
  call.elements(type, 0).counts(counts).buffers(input, output);
  enqueue(*core_, std::move(call), stream, options);
}

void DeviceCommunicator::reduce_scatter_v(const void* input, void* output, Counts counts, DataType type,
                                          ReduceOp op, Stream stream, const DeviceCallOptions& options) {
  CallBuilder call(Collective::reduce_scatter_v, core_->engine(), options);
  call.elements(type, 0).reduction(op).counts(counts).buffers(input, output);
  enqueue(*core_, std::move(call), stream, options);
}

void DeviceCommunicator::all_to_all_v(const void* input, Counts send_counts, void* output, Counts recv_counts,
                                      DataType type, Stream stream, const DeviceCallOptions& options) {
  CallBuilder call(Collective::all_to_all_v, core_->engine(), options);
  call.elements(type, 0).pair_counts(send_counts, recv_counts).buffers(input, output);
  enqueue(*core_, std::move(call), stream, options);
}

}  // namespace lockstep
