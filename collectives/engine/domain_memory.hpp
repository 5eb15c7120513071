// DomainMemory: who moves and combines the bytes of a domain's operations, where that is not a core of this
// process on its own memory.
#pragma once

#include "collectives/engine/buffers.hpp"
#include "collectives/select/choose.hpp"
#include "lib/memory/segment.hpp"

namespace lockstep::internal {

/// The memory of a device. Steps are enqueued, and run in order; the engine orders nothing but what peers
/// see.
class DomainMemory {
 public:
  virtual ~DomainMemory() = default;
  /// Enqueues a whole copy or reduce step.
  virtual Status run(const Program& program, const Step& step, const Buffers& buffers,
                     const Combine& combine) = 0;
  /// Blocks until what was enqueued has run: then peers may see it, and use what it used. Nothing enqueued
  /// waits for another rank; what keeps it from the device all the same is a timeout at the call's end.
  virtual Status complete() = 0;
  /// How peers address [pointer, pointer + bytes); owner 0: not at all.
  virtual SegmentRef reference(const void* pointer, std::size_t bytes) = 0;
  /// As the function of this name. From shared facts only.
  virtual Result<Selection> choose(const CallFacts& facts, const Shape& shape) = 0;
};

}  // namespace lockstep::internal
