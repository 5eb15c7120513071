// What a program needs of its devices beside the collectives, without CUDA's headers. Written on it,
// benchmarks, tests and integrations run on a GPU and, with LOCKSTEP_DEVICE_BACKEND=host, on a machine
// without one.
//
// On CUDA these are the runtime's own streams, events and devices: they mix freely with a program's CUDA
// calls. Every function throws Error; not_supported "no CUDA device (...)" where there is no driver, no
// device or no CUDA in this build. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "lockstep/device.hpp"
#include "lockstep/export.hpp"

namespace lockstep::device {

struct Properties {
  std::string backend;  ///< "cuda", "host"
  std::string name;     ///< "NVIDIA H200"
  std::uint64_t memory_bytes = 0;
  int compute_capability = 0;                 ///< 90 for 9.0; 0 on the host backend.
  bool kernels_of_processes_overlap = false;  ///< MPS is on, or the host backend.
};

/// Sets what CUDA's driver reads when the process first uses it: CUDA_DEVICE_MAX_CONNECTIONS (32, under MPS
/// 8) and CUDA_MODULE_LOADING (EAGER), where they are unset. The library does so before its own first use;
/// for programs that use CUDA before. Calls setenv: not beside threads that read the environment.
LOCKSTEP_API void set_driver_variables() noexcept;

LOCKSTEP_API int count();
LOCKSTEP_API Properties properties(int device);
/// The device on which the calling thread works.
LOCKSTEP_API int selected();
LOCKSTEP_API void select(int device);

/// Of the selected device.
[[nodiscard]] LOCKSTEP_API Stream create_stream();
LOCKSTEP_API void destroy_stream(Stream stream);
/// Waits until everything enqueued has run.
LOCKSTEP_API void synchronize(Stream stream);
LOCKSTEP_API bool is_idle(Stream stream);

/// A cudaEvent_t.
using Event = void*;
[[nodiscard]] LOCKSTEP_API Event create_event();
/// One that tells when it was passed, for elapsed_us().
[[nodiscard]] LOCKSTEP_API Event create_timed_event();
LOCKSTEP_API void destroy_event(Event event);
LOCKSTEP_API void record(Event event, Stream stream);
/// Enqueues a wait for what was recorded last before this call.
LOCKSTEP_API void wait(Stream stream, Event event);
/// Microseconds between the last records of two timed events that have passed.
LOCKSTEP_API double elapsed_us(Event start, Event end);

/// A cudaGraphExec_t.
using Graph = void*;
/// From here on what is enqueued to `stream` (not the default one) is recorded in place of run: copies, and
/// the collectives of communicators whose mode allows it (docs/gpu.md). Events and questions are errors.
LOCKSTEP_API void begin_capture(Stream stream);
[[nodiscard]] LOCKSTEP_API Graph end_capture(Stream stream);
[[nodiscard]] LOCKSTEP_API bool is_capturing(Stream stream);
/// Enqueues what was recorded, as often as wanted. All ranks replay theirs in the same order.
LOCKSTEP_API void replay(Graph graph, Stream stream);
LOCKSTEP_API void destroy_graph(Graph graph);

/// Enqueued; between any two memories. The ranges do not overlap, and stay valid until the stream has passed.
/// With host memory that is not pinned the call may return only when the copy is done, and keep the device
/// from other threads until then: where a collective is still in flight, use pinned memory or synchronize
/// before.
LOCKSTEP_API void copy(void* destination, const void* source, std::size_t bytes, Stream stream);
LOCKSTEP_API void fill(void* destination, std::uint8_t value, std::size_t bytes, Stream stream);

/// Zeroed host memory that every device can read and write at the same address.
[[nodiscard]] LOCKSTEP_API void* allocate_pinned(std::size_t bytes);
LOCKSTEP_API void free_pinned(void* memory);

}  // namespace lockstep::device
