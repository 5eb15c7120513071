// DeviceSteps: the steps of domain programs as operations of a stream.
#pragma once

#include "collectives/device/device_choice.hpp"
#include "collectives/device/shared_buffers.hpp"
#include "collectives/device/write_guard.hpp"
#include "collectives/engine/domain_memory.hpp"
#include "lib/device/backend.hpp"

namespace lockstep::internal {

/// Enqueues a copy or reduce step on `stream`, whose device is selected. `permit` not null: what it writes it
/// writes only while that word is not 0.
Status enqueue_step(Backend& backend, DeviceStream stream, const Program& program, const Step& step,
                    const Buffers& buffers, const Combine& combine, const std::uint32_t* permit);
/// Whether the step writes to memory of another rank's caller.
bool writes_to_peers(const Program& program, const Step& step);
/// The same under `guard`, where the step writes to another rank's buffer and it is not null.
Status enqueue_step(Backend& backend, DeviceStream stream, const Program& program, const Step& step,
                    const Buffers& buffers, const Combine& combine, WriteGuard* guard);

/// The memory of an engine whose steps run on a stream of this rank's own. The engine's caller waits for it
/// on the host, so that no stream ever waits for another rank.
class DeviceSteps final : public DomainMemory {
 public:
  /// All outlive it. `stream` is of `device`. `take_turns`: as in ModeDecision.
  DeviceSteps(Backend& backend, int device, DeviceStream stream, const SharedBuffers& buffers,
              bool take_turns)
      : backend_(backend), device_(device), stream_(stream), buffers_(buffers), take_turns_(take_turns) {}
  /// Null: there are no peers, or too many for it.
  void set_guard(std::unique_ptr<WriteGuard> guard) { guard_ = std::move(guard); }
  WriteGuard* guard() { return guard_.get(); }
  /// Of the operations from here on.
  void set_end(Nanos end) { end_ = end; }
  /// The operation failed: nobody writes to this rank's memory any more, unless it says that it cannot tell.
  Status close();

  Status run(const Program& program, const Step& step, const Buffers& buffers,
             const Combine& combine) override;
  Status complete() override;
  SegmentRef reference(const void* pointer, std::size_t bytes) override {
    return buffers_.find(pointer, bytes);
  }
  Result<Selection> choose(const CallFacts& facts, const Shape& shape) override {
    return choose_for_device(facts, shape, {.take_turns = take_turns_});
  }

 private:
  Backend& backend_;
  const int device_;
  const DeviceStream stream_;
  const SharedBuffers& buffers_;
  const bool take_turns_;
  std::unique_ptr<WriteGuard> guard_;
  Nanos end_ = kForever;
};

}  // namespace lockstep::internal
