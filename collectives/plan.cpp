// Plan: a collective whose arguments were checked once.
#include "collectives/call_builder.hpp"
#include "collectives/communicator_core.hpp"
#include "collectives/forked_child.hpp"
#include "lockstep/communicator.hpp"

namespace lockstep {

using internal::CallBuilder;

struct Plan::State {
  State(std::shared_ptr<internal::CommunicatorCore> owner, Collective collective, const CallOptions& options)
      : core(std::move(owner)), builder(collective, core->engine(), options) {}

  std::shared_ptr<internal::CommunicatorCore> core;
  CallBuilder builder;
};

Plan::Plan(std::unique_ptr<State> state) noexcept : state_(std::move(state)) { state_->builder.build(); }
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
  auto state = std::make_unique<Plan::State>(core_, Collective::all_reduce, options);
  state->builder.elements(type, count).reduction(op).buffers(input, output);
  return Plan(std::move(state));
}

Plan Communicator::plan_broadcast(void* buffer, std::size_t count, DataType type, int root,
                                  const CallOptions& options) {
  auto state = std::make_unique<Plan::State>(core_, Collective::broadcast, options);
  state->builder.elements(type, count).root(root).buffers(buffer, buffer);
  return Plan(std::move(state));
}

Plan Communicator::plan_all_gather(const void* input, void* output, std::size_t count, DataType type,
                                   const CallOptions& options) {
  auto state = std::make_unique<Plan::State>(core_, Collective::all_gather, options);
  state->builder.elements(type, count).buffers(input, output);
  return Plan(std::move(state));
}

Plan Communicator::plan_reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                                       ReduceOp op, const CallOptions& options) {
  auto state = std::make_unique<Plan::State>(core_, Collective::reduce_scatter, options);
  state->builder.elements(type, count).reduction(op).buffers(input, output);
  return Plan(std::move(state));
}

}  // namespace lockstep
