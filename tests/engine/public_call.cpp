#include "tests/engine/public_call.hpp"

namespace lockstep::internal {

namespace {

Work start_regular(Communicator& communicator, const CollectiveCase& c, const CallBuffers& buffers,
                   const CallOptions& options) {
  const void* in = buffers.input();
  void* out = buffers.output();
  switch (c.collective) {
    case Collective::all_reduce:
      return communicator.all_reduce_async(in, out, c.count, c.type, c.op, options);
    case Collective::reduce:
      return communicator.reduce_async(in, out, c.count, c.type, c.op, c.root, options);
    case Collective::broadcast:
      return communicator.broadcast_async(out, c.count, c.type, c.root, options);
    case Collective::scatter:
      return communicator.scatter_async(in, out, c.count, c.type, c.root, options);
    case Collective::gather:
      return communicator.gather_async(in, out, c.count, c.type, c.root, options);
    case Collective::all_gather:
      return communicator.all_gather_async(in, out, c.count, c.type, options);
    case Collective::reduce_scatter:
      return communicator.reduce_scatter_async(in, out, c.count, c.type, c.op, options);
    case Collective::all_to_all:
      return communicator.all_to_all_async(in, out, c.count, c.type, options);
    default:
      return communicator.barrier_async(options);
  }
}

}  // namespace

Work start_public(Communicator& communicator, const CollectiveCase& c, const CallBuffers& buffers,
                  CallOptions options) {
  const int rank = communicator.rank();
  options.scale = c.scale(rank);
  options.user_op = c.user_op();
  if (!c.irregular()) return start_regular(communicator, c, buffers, options);
  const void* in = buffers.input();
  void* out = buffers.output();
  const auto counts = c.counts(rank);
  switch (c.collective) {
    case Collective::scatter_v:
      return communicator.scatter_v_async(in, counts, out, c.output_elements(rank), c.type, c.root, options);
    case Collective::gather_v:
      return communicator.gather_v_async(in, c.input_elements(rank), out, counts, c.type, c.root, options);
    case Collective::all_gather_v:
      return communicator.all_gather_v_async(in, out, counts, c.type, options);
    case Collective::reduce_scatter_v:
      return communicator.reduce_scatter_v_async(in, out, counts, c.type, c.op, options);
    default:
      return communicator.all_to_all_v_async(in, counts, out, c.receive_counts(rank), c.type, options);
  }
}

}  // namespace lockstep::internal
