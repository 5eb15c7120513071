// Selector: from a call to what runs it: its shape, the choice of an algorithm, the buffers that peers may
// use.
#pragma once

#include <array>
#include <memory>

#include "collectives/engine/domain_memory.hpp"
#include "collectives/engine/domain_run.hpp"
#include "collectives/engine/engine_group.hpp"
#include "collectives/engine/operation_pool.hpp"
#include "collectives/engine/pull_trials.hpp"
#include "collectives/select/choose.hpp"
#include "collectives/select/model_source.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

/// A call without counts that was made before.
struct KnownCall {
  CallFacts facts;
  std::uint64_t hash = 0;  ///< hash_of(facts)
  bool valid = false;
  Selection selection;
  Operation* repeatable = nullptr;  ///< That a DomainRun ended in place, for the next such call; in no list.
};

/// Of one communicator. Not thread-safe (the engine's lock guards it), but for what is const.
class Selector {
 public:
  /// `transport` may be null; `memory`, of a device, too. All outlive it.
  Selector(const EngineGroup& group, Transport* transport, DomainMemory* memory, OperationPool& pool,
           const SharedModel& model, Env& env);

  const Capabilities& capabilities() const { return capabilities_; }
  ChoiceTable& choices() const { return *choices_; }

  /// In place: the shape's lists keep their capacity, and a repeated call finds what it had.
  void set_shape(Operation& operation) const;
  /// Of a call that has no counts it is known from then on, and the last one; not where inputs are scaled
  /// first, which repeated calls leave out.
  Result<Selection> choose_for(const CallFacts& facts, const Shape& shape);

  /// Whether such a call is known: then it is the last one.
  bool recall(const CallFacts& facts);
  /// After recall() said yes.
  KnownCall& last() { return *last_; }

  /// Of what was chosen for `call`, what its ranks may run.
  Selection as_may_run(const Selection& selection, const Call& call) const;
  /// The same for the run of `operation` in the domain.
  DomainChoice domain_choice(const Operation& operation, const Selection& selection);
  /// This rank's buffers as peers would address them. `input`: of the call, or its scaled copy.
  OfferedBuffers offers_of(const Call& call, const Selection& selection, const void* input) const;

 private:
  bool may_pull(const Selection& selection) const;

  const EngineGroup& group_;
  Domain* const domain_;
  DomainMemory* const memory_;
  OperationPool& pool_;
  Capabilities capabilities_;
  const std::uint64_t segment_bytes_;
  std::vector<int> hosts_;  // As Shape::hosts.
  std::shared_ptr<ChoiceTable> choices_;
  std::uint64_t past_caches_from_;  // Bytes from which results are written past the caches.
  bool one_process_;                // All ranks are threads of this process: any memory is addressable.
  PullTrials pull_trials_;
  std::array<KnownCall, kKnownCalls> known_calls_{};
  KnownCall* last_ = nullptr;  // Of the last call without counts.
};

}  // namespace lockstep::internal
