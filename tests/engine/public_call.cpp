#include "tests/engine/public_call.hpp"

namespace lockstep::internal {

namespace {

/// Both forms of a call with the same arguments. The blocking one is over when it returns.
#define LOCKSTEP_CALL(name, ...) \
  (blocks ? (communicator.name(__VA_ARGS__), Work()) : communicator.name##_async(__VA_ARGS__))

Work call_regular(Communicator& communicator, const CollectiveCase& c, const CallBuffers& buffers,
                  const CallOptions& options, bool blocks) {
  const void* in = buffers.input();
  void* out = buffers.output();
  switch (c.collective) {
    case Collective::all_reduce:
      return LOCKSTEP_CALL(all_reduce, in, out, c.count, c.type, c.op, options);
    case Collective::reduce:
      return LOCKSTEP_CALL(reduce, in, out, c.count, c.type, c.op, c.root, options);
    case Collective::broadcast:
      return LOCKSTEP_CALL(broadcast, out, c.count, c.type, c.root, options);
    case Collective::scatter:
      return LOCKSTEP_CALL(scatter, in, out, c.count, c.type, c.root, options);
    case Collective::gather:
      return LOCKSTEP_CALL(gather, in, out, c.count, c.type, c.root, options);
    case Collective::all_gather:
      return LOCKSTEP_CALL(all_gather, in, out, c.count, c.type, options);
    case Collective::reduce_scatter:
      return LOCKSTEP_CALL(reduce_scatter, in, out, c.count, c.type, c.op, options);
    case Collective::all_to_all:
      return LOCKSTEP_CALL(all_to_all, in, out, c.count, c.type, options);
    default:
      return LOCKSTEP_CALL(barrier, options);
  }
}

Work call_irregular(Communicator& communicator, const CollectiveCase& c, const CallBuffers& buffers,
                    const CallOptions& options, bool blocks) {
  const int rank = communicator.rank();
  const void* in = buffers.input();
  void* out = buffers.output();
  const auto counts = c.counts(rank);
  switch (c.collective) {
    case Collective::scatter_v:
      return LOCKSTEP_CALL(scatter_v, in, counts, out, c.output_elements(rank), c.type, c.root, options);
    case Collective::gather_v:
      return LOCKSTEP_CALL(gather_v, in, c.input_elements(rank), out, counts, c.type, c.root, options);
    case Collective::all_gather_v:
      return LOCKSTEP_CALL(all_gather_v, in, out, counts, c.type, options);
    case Collective::reduce_scatter_v:
      return LOCKSTEP_CALL(reduce_scatter_v, in, out, counts, c.type, c.op, options);
    default:
      return LOCKSTEP_CALL(all_to_all_v, in, counts, out, c.receive_counts(rank), c.type, options);
  }
}

#undef LOCKSTEP_CALL

Work call_public(Communicator& communicator, const CollectiveCase& c, const CallBuffers& buffers,
                 CallOptions options, bool blocks) {
  options.scale = c.scale(communicator.rank());
  options.user_op = c.user_op();
  return c.irregular() ? call_irregular(communicator, c, buffers, options, blocks)
                       : call_regular(communicator, c, buffers, options, blocks);
}

}  // namespace

Work start_public(Communicator& communicator, const CollectiveCase& c, const CallBuffers& buffers,
                  const CallOptions& options) {
  return call_public(communicator, c, buffers, options, false);
}

void run_public(Communicator& communicator, const CollectiveCase& c, const CallBuffers& buffers,
                const CallOptions& options) {
  static_cast<void>(call_public(communicator, c, buffers, options, true));
}

}  // namespace lockstep::internal
