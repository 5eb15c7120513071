// OperationPool: the operations of an engine, used again and again.
#pragma once

#include <memory>
#include <vector>

#include "collectives/engine/operation.hpp"

namespace lockstep::internal {

/// Not thread-safe (the engine's lock guards it).
class OperationPool {
 public:
  explicit OperationPool(Engine& engine) : engine_(engine) {}

  /// How many there are, and how many of them nobody uses.
  std::size_t size() const { return pool_.size(); }
  std::size_t free() const { return free_.size(); }
  /// After it so many take() need no memory.
  void keep_free(std::size_t operations);
  /// As new, with two references: the engine's and the caller's.
  Operation& take(Operation::Kind kind);
  void unreference(Operation& operation);
  /// Of one that ended in place, and has no handle. Needs no memory.
  void give_back(Operation& operation) { free_.push_back(&operation); }
  ScratchPool& scratch() { return scratch_; }

 private:
  Engine& engine_;
  std::vector<std::unique_ptr<Operation>> pool_;
  std::vector<Operation*> free_;  // Has room for all.
  ScratchPool scratch_;
};

}  // namespace lockstep::internal
