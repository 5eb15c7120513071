// Plan: a collective whose arguments were checked once.
#include "collectives/call_builder.hpp"
#include "collectives/communicator_core.hpp"
#include "collectives/forked_child.hpp"
#include "lockstep/communicator.hpp"

namespace lockstep {

using internal::movement;
using internal::reduction;

struct Plan::State {
  State(std::shared_ptr<internal::CommunicatorCore> owner, const internal::CallFacts& facts,
        const void* input, void* output, const CallOptions& options)
      : core(std::move(owner)), builder(facts, core->engine(), options) {
    builder.buffers(input, output).build();
  }

  std::shared_ptr<internal::CommunicatorCore> core;
  internal::CallBuilder builder;
};

Plan::Plan(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;
Plan::~Plan() = default;

Work Plan::start() {
  internal::refuse_in_forked_child();
  return Work(state_->core->engine().start(state_->builder.call()));
}

void Plan::run() {
  internal::refuse_in_forked_child();
  state_->core->engine().run(state_->builder.call()).throw_if_error();
}

Plan Communicator::plan_all_reduce(const void* input, void* output, std::size_t count, DataType type,
                                   ReduceOp op, const CallOptions& options) {
  return Plan(std::make_unique<Plan::State>(core_, reduction(Collective::all_reduce, count, type, op), input,
                                            output, options));
}

Plan Communicator::plan_broadcast(void* buffer, std::size_t count, DataType type, int root,
                                  const CallOptions& options) {
  return Plan(std::make_unique<Plan::State>(core_, movement(Collective::broadcast, count, type, root), buffer,
                                            buffer, options));
}

Plan Communicator::plan_all_gather(const void* input, void* output, std::size_t count, DataType type,
                                   const CallOptions& options) {
  return Plan(std::make_unique<Plan::State>(core_, movement(Collective::all_gather, count, type), input,
                                            output, options));
}

Plan Communicator::plan_reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                                       ReduceOp op, const CallOptions& options) {
  return Plan(std::make_unique<Plan::State>(core_, reduction(Collective::reduce_scatter, count, type, op),
                                            input, output, options));
}

}  // namespace lockstep
