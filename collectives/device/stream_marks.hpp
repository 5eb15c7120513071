// StreamMarks: where in its streams a thread finds a rank's calls, without a call to the driver.
#pragma once

#include <memory>

#include "collectives/device/hosts/transit_memory.hpp"
#include "collectives/device/stream_words.hpp"

namespace lockstep::internal {

/// Numbers are given and enqueued in the order of the calls, which run in that order.
class StreamMarks {
 public:
  static Result<std::unique_ptr<StreamMarks>> make(Backend& backend) {
    auto words = TransitMemory::pinned(backend, sizeof(Words));
    if (!words.ok()) return words.status();
    return std::unique_ptr<StreamMarks>(new StreamMarks(backend, std::move(*words)));
  }

  /// Whether streams of the selected device can write words and wait for them.
  Status try_out(DeviceStream stream) {
    Status status = enqueue_begin(0, stream);
    if (status.ok()) status = backend_.wait_value(&words().begun, 0, stream);
    if (status.ok()) status = backend_.synchronize(stream);
    return status.with_context("between hosts streams wait for words (cuStreamBatchMemOp), which fails here");
  }

  std::uint32_t next_number() { return ++last_; }
  Status enqueue_begin(std::uint32_t number, DeviceStream stream) {
    return backend_.write_value(&words().begun, number, stream);
  }
  Status enqueue_end(std::uint32_t number, DeviceStream stream) {
    return backend_.write_value(&words().ended, number, stream);
  }
  // From any thread.
  bool has_begun(std::uint32_t number) const { return has_reached(words().begun, number); }
  bool has_ended(std::uint32_t number) const { return has_reached(words().ended, number); }

 private:
  struct Words {
    alignas(128) std::uint32_t begun, ended;
  };
  StreamMarks(Backend& backend, std::unique_ptr<TransitMemory> words)
      : backend_(backend), words_(std::move(words)) {}
  Words& words() const { return *reinterpret_cast<Words*>(words_->data()); }

  Backend& backend_;
  const std::unique_ptr<TransitMemory> words_;
  std::uint32_t last_ = 0;
};

}  // namespace lockstep::internal
