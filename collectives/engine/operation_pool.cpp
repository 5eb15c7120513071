#include "collectives/engine/operation_pool.hpp"

namespace lockstep::internal {

void OperationPool::keep_free(std::size_t operations) {
  while (free_.size() < operations) {
    if (free_.capacity() == pool_.size()) free_.reserve(2 * pool_.size() + 8);  // To give back never fails.
    pool_.push_back(std::make_unique<Operation>());
    free_.push_back(pool_.back().get());
  }
}

Operation& OperationPool::take(Operation::Kind kind) {
  keep_free(1);
  Operation& operation = *free_.back();
  free_.pop_back();
  operation.kind = kind;
  operation.path = Operation::Path::none;
  operation.engine = &engine_;
  operation.references = 2;
  operation.started = operation.deadline = operation.probed = operation.last_moved = 0;
  operation.attended = operation.urgent = operation.moved = false;
  operation.status = {};
  operation.scaling = {};
  operation.done.store(false, std::memory_order_relaxed);
  operation.received = {};
  operation.parent = nullptr;
  operation.children = 0;
  return operation;
}

void OperationPool::unreference(Operation& operation) {
  if (--operation.references > 0) return;
  for (Scratch* scratch : {&operation.scratch, &operation.scaled}) scratch_.give_back(*scratch);
  give_back(operation);
}

}  // namespace lockstep::internal
