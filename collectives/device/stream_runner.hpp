// StreamRunner: the programs of a domain as operations of the caller's stream, for mode stream_sync.
//
// Every rank has a word for each member in its own device memory. publish writes this rank's phase into its
// word at every member; await makes the stream wait for the members' words. Phases rise for ever (modulo
// 2^32) and no word is reset, so a program needs no acknowledgement beyond those that it has.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "collectives/device/call_runner.hpp"
#include "collectives/engine/prepared_program.hpp"
#include "lib/device/backend.hpp"

namespace lockstep::internal {

/// Where the members' words and staging areas lie as this rank's device addresses them.
struct StreamAreas {
  int rank = 0;
  std::vector<std::byte*> words;  ///< By member; word_bytes(world) each, zero at first.
  std::vector<std::byte*> staging;
  std::size_t staging_bytes = 0;
  int world() const { return static_cast<int>(words.size()); }
};

/// Words are a cache line apart: each has another writer.
inline constexpr std::size_t kWordStride = 128;
/// Of one rank's words, rounded up to what memory is aligned to.
constexpr std::size_t word_bytes(int world) {
  constexpr std::size_t kPage = 4096;
  return (static_cast<std::size_t>(world) * kWordStride + kPage - 1) / kPage * kPage;
}

class StreamRunner final : public CallRunner {
 public:
  /// `backend` outlives it. `take_turns`: as in ModeDecision.
  StreamRunner(Backend& backend, StreamAreas areas, bool take_turns)
      : backend_(backend), areas_(std::move(areas)), take_turns_(take_turns) {}

  Status enqueue(const Call& call, DeviceStream stream) override;
  Status let_pass(DeviceStream stream) override;

 private:
  DeviceGround ground() const override { return {.take_turns = take_turns_}; }
  /// What phases write and wait for, up to the next step of another kind, is one call of the driver.
  void add_phase(const Step& step);
  Status enqueue_words(DeviceStream stream);
  std::uint32_t* word(int owner, int writer) const {
    return reinterpret_cast<std::uint32_t*>(areas_.words[static_cast<std::size_t>(owner)] +
                                            static_cast<std::size_t>(writer) * kWordStride);
  }

  Backend& backend_;
  const StreamAreas areas_;
  const bool take_turns_;
  ProgramCache programs_;
  Shape shape_;
  std::vector<std::byte*> halves_;      ///< Of the members' staging areas, those of the current call.
  std::vector<WordOperation> words_;    ///< Of phases, not enqueued yet.
  std::atomic<std::uint32_t> base_{0};  ///< Phase before the current call's first.
  std::uint64_t calls_ = 0;
};

}  // namespace lockstep::internal
