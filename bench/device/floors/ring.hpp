// A token that travels around a ring of processes which share a device: what one process costs another to
// wait for, by each of the means that a library has.
#pragma once

#include <cstdint>

#include "lib/device/backend.hpp"

namespace lockstep::bench {

enum class Waiting : std::uint8_t {
  kernel,  ///< A kernel spins until the word arrives. Without MPS it holds the GPU for its time slice.
  stream,  ///< The stream waits (stream memory operations).
  host,    ///< The host waits, then enqueues, then waits for the stream.
  kernel_behind_stream,  ///< The stream waits, then a kernel writes: processes that share the GPU take turns.
  kernel_behind_host,    ///< The host waits, then a kernel writes, for whose end it waits.
  copy_behind_stream,    ///< As stream, with a small copy in between,
  event_behind_stream,   ///< or an event that tells the time.
};
const char* name_of(Waiting waiting);

/// What a process has for it: a stream, an event that tells the time, and two words of device memory.
struct Seat {
  internal::Backend& backend;
  internal::DeviceStream stream;
  internal::DeviceEvent event = nullptr;  ///< Only for event_behind_stream,
  std::uint32_t* own = nullptr;           ///< and this for copy_behind_stream.
};

/// Puts into the stream what waits until the word is `wanted` and makes it one more. `word` is known to the
/// streams. What the kernel waits for, it waits for at most two seconds.
internal::Status pass_on(const Seat& seat, Waiting waiting, std::uint32_t* word, std::uint32_t wanted);

/// This process's part of `rounds` rounds of a ring of `ranks`; the word starts at `first`.
internal::Status run_ring(const Seat& seat, Waiting waiting, std::uint32_t* word, int rank, int ranks,
                          std::uint32_t first, int rounds);

}  // namespace lockstep::bench
