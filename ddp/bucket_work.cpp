#include "ddp/bucket_work.hpp"

#include "collectives/call_builder.hpp"
#include "collectives/communicator_core.hpp"
#include "lib/net/fd.hpp"

namespace lockstep::internal {
namespace {

Work start(Communicator& communicator, StepClock& clock, const GradientBucket& bucket, Collective collective,
           void* output, std::size_t count, bool urgent) {
  if (in_forked_child())
    throw Error(ErrorCode::not_supported, "a child forked by the trainer has no connections");
  Engine& engine = communicator.core().engine();
  CallOptions options;
  options.priority = urgent ? 1 : 0;
  CallBuilder call(collective, engine, options);
  call.elements(bucket.type, count).reduction(bucket.op()).buffers(bucket.data, output);
  const std::size_t index = bucket.index;
  return Work(engine.start(call.build(), [&clock, index](bool) { clock.bucket_done(index); }));
}

}  // namespace

Work start_all_reduce(Communicator& communicator, StepClock& clock, const GradientBucket& bucket,
                      bool urgent) {
  return start(communicator, clock, bucket, Collective::all_reduce, bucket.data, bucket.count, urgent);
}

Work start_reduce_scatter(Communicator& communicator, StepClock& clock, const GradientBucket& bucket,
                          void* shard, std::size_t count) {
  return start(communicator, clock, bucket, Collective::reduce_scatter, shard, count, false);
}

}  // namespace lockstep::internal
