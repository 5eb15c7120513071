// Backend: the only door to a GPU. Everything above it speaks of devices, memory, streams and events through
// this class and is the same on CUDA (lib/device/cuda) and on the host backend (lib/device/host), which
// executes the same operations on threads over ordinary memory.
//
// Whatever is "enqueued" returns at once and runs on its stream after what was enqueued there before. Every
// pointer of an enqueued operation has to stay valid until it ran; lists (spans) are copied before the call
// returns. The calling thread must have selected the device of the stream (DeviceScope). All functions may be
// called from any thread. An error names what was refused and what to do about it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "lib/base/status.hpp"
#include "lib/net/fd.hpp"
#include "lib/reduce/job.hpp"

namespace lockstep::internal {

/// A cudaStream_t of the caller or of create_stream(); nullptr is the default stream of the selected device.
using DeviceStream = void*;
/// cudaStreamPerThread: of every thread another stream.
inline const DeviceStream kStreamPerThread = reinterpret_cast<DeviceStream>(std::uintptr_t{2});
/// A cudaEvent_t.
using DeviceEvent = void*;
/// A cudaGraphExec_t.
using DeviceGraph = void*;
/// What a thread works on, in the backend's own words; 0: it has chosen no device yet.
using ThreadDevice = std::uintptr_t;

struct DeviceIdentity {
  std::array<std::uint8_t, 16>
      uuid{};  ///< Equal for two processes that see one device. Of a MIG slice: its own.
  std::string name;
  std::uint64_t memory = 0;                   ///< Bytes.
  int sm = 0;                                 ///< 90 for compute capability 9.0; 0 on the host backend.
  int multiprocessors = 0;                    ///< What runs blocks of kernels side by side.
  bool kernels_of_processes_overlap = false;  ///< MPS is on (or the host backend): no time slices.
};

enum class MemoryKind : std::uint8_t {
  plain,      ///< cudaMalloc: exported as a legacy handle, from 2 MiB (kLegacyBlock).
  shareable,  ///< Virtual memory management: exported as a descriptor.
  pool,       ///< cudaMallocAsync: not exportable, as much of what frameworks allocate.
};

enum class MemorySpace : std::uint8_t {
  unregistered,  ///< Host memory that no device knows.
  pinned,        ///< Host memory that devices can read and write.
  device,
  managed,  ///< Moves between both; neither exportable nor good for operate().
};

/// The allocation in which an address lies; of virtual memory management the mapping.
struct Allocation {
  MemorySpace space = MemorySpace::unregistered;
  int device = -1;  ///< Of device memory.
  std::byte* base = nullptr;
  std::size_t bytes = 0;
  /// Unique in this process and never reused, so that an address that was freed and allocated again is told
  /// apart. 0 for unregistered memory.
  std::uint64_t generation = 0;
  /// Not the whole of its range of addresses: a buffer may go on in the next mapping, and is not exported.
  bool is_part = false;
};

/// Whose calls a capture keeps from what could wait for recorded work: questions after streams and events,
/// allocations, frees. Trying it breaks the capture.
enum class CaptureScope : std::uint8_t {
  thread,   ///< Those of the thread that captures.
  process,  ///< Those of all threads but the ones that heed no captures.
};

/// CUDA cuts small allocations from blocks of this size. A legacy handle is of the block, and while it is
/// open for one of them the importer cannot open it for another, or gets the other's address.
inline constexpr std::size_t kLegacyBlock = 2 << 20;
/// What plain memory has to be allocated in, to be exported.
constexpr std::size_t whole_legacy_blocks(std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(-1) - kLegacyBlock) return bytes;  // Refused as such.
  return (bytes + kLegacyBlock - 1) / kLegacyBlock * kLegacyBlock;
}
/// Whether `bytes` at `base` are what a block, or several, hold, as far as others are exported: they begin
/// it, and end in its last 2 MiB. `block` 0: not known.
constexpr bool fills_legacy_blocks(std::uintptr_t base, std::size_t bytes, std::uintptr_t block,
                                   std::size_t block_bytes) {
  if (bytes < kLegacyBlock) return false;
  return block == 0 || (base == block && whole_legacy_blocks(bytes) >= block_bytes);
}

inline constexpr std::size_t kLegacyHandleBytes = 64;
using LegacyHandle = std::array<std::byte, kLegacyHandleBytes>;

/// One allocation as other processes of this host can map it, in every form that its owner has.
struct MemoryExport {
  std::size_t bytes = 0;  ///< Of the whole allocation: mappings begin at its base.
  bool has_legacy = false;
  LegacyHandle legacy{};
  Fd descriptor;  ///< Maybe none.
};

/// A 32-bit word in device or pinned memory, written by a stream, or waited for until it has reached a value:
/// (int32)(*where - value) >= 0, so that sequence numbers may wrap.
struct WordOperation {
  enum class Kind : std::uint8_t { write, wait };
  Kind kind = Kind::write;
  std::uint32_t* where = nullptr;
  std::uint32_t value = 0;
};

/// A kernel that is not one of the backend's own. Of the two bodies the backend runs the one that is its own.
struct KernelLaunch {
  static constexpr std::size_t kArgumentBytes = 4032;  ///< Below CUDA's 4096.
  const char* name = "";                               ///< Lives as long as the program.
  /// `arguments` bytes are copied; both bodies get the copy.
  const void* arguments = nullptr;
  std::size_t argument_bytes = 0;
  void (*on_host)(const void* arguments) = nullptr;
  /// Starts a kernel on the stream and returns the cudaError_t of the launch. Null where CUDA was not built.
  int (*on_cuda)(const void* arguments, DeviceStream stream) = nullptr;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const noexcept = 0;  ///< "cuda", "host"
  /// Whether this host's memory and threads stand for the devices.
  bool is_host() const noexcept { return std::string_view(name()) == "host"; }

  // Devices.
  virtual Result<int> device_count() = 0;
  virtual Result<DeviceIdentity> identify(int device) = 0;
  /// The device on which the calling thread works.
  virtual Result<int> selected() = 0;
  virtual Status select(int device) = 0;
  /// Lets the calling thread work on `device`, and gives what it worked on before, for leave(). Use
  /// DeviceScope.
  virtual Result<ThreadDevice> enter(int device) = 0;
  /// A thread that had no device has none again: selecting device 0, by which CUDA's threads begin, would
  /// take memory of it in every process.
  virtual void leave(ThreadDevice before) noexcept = 0;
  /// Loads what a first use would load. Call it before anything waits on a stream of this device: a first use
  /// may itself wait until all streams have run.
  virtual Status prepare(int device) = 0;
  /// Whether other kernels of the program are loaded when they are first started, which may wait for all
  /// streams and keep other threads from the driver meanwhile.
  virtual bool loads_kernels_late() { return false; }
  /// Whether kernels and copies of `device` can reach memory of `peer` directly; enable_peer lets them reach
  /// this process's (again is fine), which takes memory of both. Imported memory needs no more than that it
  /// can. A device is its own peer.
  virtual Result<bool> can_access(int device, int peer) = 0;
  virtual Status enable_peer(int device, int peer) = 0;

  // Memory. A fresh allocation's content is undefined.
  virtual Result<void*> allocate(int device, std::size_t bytes, MemoryKind kind = MemoryKind::plain) = 0;
  /// After everything enqueued on it ran. Waits for the device if it must; while streams are held
  /// (held_streams.hpp) it is put off.
  virtual Status free(void* memory) = 0;
  // Host memory is of no device: a thread without one works on one that the process uses already.
  /// Zeroed, that every device can read and write at the same address.
  virtual Result<void*> allocate_pinned(std::size_t bytes) = 0;
  /// As free(), of the selected device.
  virtual Status free_pinned(void* memory) = 0;
  /// Lets streams use host memory of the caller (shared with other processes or not); page-aligned. Returns
  /// the address that kernels and operate() have to be given.
  virtual Result<void*> register_host(void* memory, std::size_t bytes) = 0;
  virtual Status unregister_host(void* memory) = 0;
  /// Ok with space `unregistered` for plain host memory.
  virtual Result<Allocation> locate(const void* pointer) = 0;

  // Memory of other processes.
  /// Of the allocation in which `memory` lies. not_supported (pools, managed memory, what shares a block with
  /// others): stage it.
  virtual Result<MemoryExport> export_memory(const void* memory) = 0;
  /// Maps another process's allocation for the selected device; of the forms the importer takes what works.
  /// Not for memory of this process. Nobody may use it after the exporter freed it: close before that.
  virtual Result<void*> import_memory(const MemoryExport& memory) = 0;
  virtual Status close_imported(void* base) = 0;

  // Streams.
  enum class Priority : std::uint8_t { normal, high };
  /// A stream that does not synchronise with the default stream.
  virtual Result<DeviceStream> create_stream(Priority priority = Priority::normal) = 0;
  /// What was enqueued still runs.
  virtual Status destroy_stream(DeviceStream stream) = 0;
  virtual Status synchronize(DeviceStream stream) = 0;
  /// True when everything enqueued so far ran.
  virtual Result<bool> idle(DeviceStream stream) = 0;
  /// Tells streams apart where handles do not: those of threads share one, and one of a destroyed stream is
  /// given to a later one. Never reused. Asked by a thread that may enqueue to it.
  virtual Result<std::uint64_t> stream_number(DeviceStream stream) = 0;
  /// True while a graph is recorded from it: the operations will run later, perhaps more than once.
  virtual Result<bool> capturing(DeviceStream stream) = 0;

  // Graphs.
  /// What is enqueued to `stream` from here on does not run, but is recorded. Not the default stream. Asking
  /// or waiting for a recorded stream, and events in it, are errors (on CUDA events that stay inside work).
  virtual Status begin_capture(DeviceStream stream, CaptureScope scope = CaptureScope::thread) = 0;
  virtual Result<DeviceGraph> end_capture(DeviceStream stream) = 0;
  /// Enqueues everything recorded, with the arguments that it had then.
  virtual Status replay(DeviceGraph graph, DeviceStream stream) = 0;
  /// What was enqueued still runs.
  virtual Status destroy_graph(DeviceGraph graph) = 0;
  /// Whether the calling thread's calls have to do with what other threads capture; gives what was before
  /// (yes). Use BesideCaptures.
  virtual bool heed_captures(bool heeds) noexcept = 0;

  // Events.
  virtual Result<DeviceEvent> create_event() = 0;
  /// One that tells when it was passed, which costs more: for elapsed_us().
  virtual Result<DeviceEvent> create_timed_event() = 0;
  virtual Status destroy_event(DeviceEvent event) = 0;
  virtual Status record(DeviceEvent event, DeviceStream stream) = 0;
  /// True when the work recorded last has run, or nothing was recorded.
  virtual Result<bool> query(DeviceEvent event) = 0;
  virtual Status synchronize_event(DeviceEvent event) = 0;
  /// Microseconds between what was recorded last in two timed events; both have passed.
  virtual Result<double> elapsed_us(DeviceEvent start, DeviceEvent end) = 0;
  /// Enqueues a wait for the work that was recorded last before this call.
  virtual Status wait_event(DeviceStream stream, DeviceEvent event) = 0;

  // Enqueued.
  /// Between any two spaces; the ranges do not overlap. From or to unregistered memory it may block until it
  /// is done, and with it every other call for this device: the library itself copies pinned memory.
  virtual Status copy(void* destination, const void* source, std::size_t bytes, DeviceStream stream) = 0;
  virtual Status fill(void* destination, std::uint8_t value, std::size_t bytes, DeviceStream stream) = 0;
  virtual Status reduce(const ReduceJob& job, DeviceStream stream) = 0;
  virtual Status convert(const ConvertJob& job, DeviceStream stream) = 0;
  virtual Status quantise(const QuantiseJob& job, DeviceStream stream) = 0;
  virtual Status dequantise(const DequantiseJob& job, DeviceStream stream) = 0;
  /// In order, as one batch. What the stream wrote before is visible to whoever sees a written value. A wait
  /// ends only when its word gets there: whoever aborts writes it.
  virtual Status operate(std::span<const WordOperation> operations, DeviceStream stream) = 0;
  virtual Status launch(const KernelLaunch& kernel, DeviceStream stream) = 0;

  Status write_value(std::uint32_t* where, std::uint32_t value, DeviceStream stream) {
    const WordOperation one{WordOperation::Kind::write, where, value};
    return operate({&one, 1}, stream);
  }
  Status wait_value(std::uint32_t* where, std::uint32_t value, DeviceStream stream) {
    const WordOperation one{WordOperation::Kind::wait, where, value};
    return operate({&one, 1}, stream);
  }
};

/// The process's backend: CUDA's, or the host's with LOCKSTEP_DEVICE_BACKEND=host. Made at the first call and
/// never destroyed. not_supported "no CUDA device: ..." when there is no driver, no device, or no CUDA in
/// this build; an error where check_environment() finds one, and in a child forked after its parent used it.
Result<Backend*> device_backend();
/// The same for callers of the public interface.
Backend& device_backend_or_throw();

/// What this thread does is no part of what others capture: a capture of theirs neither refuses it nor breaks
/// by it. For threads of the library, and for what gives back what it made.
class BesideCaptures {
 public:
  explicit BesideCaptures(Backend& backend) : backend_(backend), before_(backend.heed_captures(false)) {}
  ~BesideCaptures() { static_cast<void>(backend_.heed_captures(before_)); }
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  Backend& backend_;
  const bool before_;
};

/// Selects a device for this thread and puts the caller's back, or that there was none.
class DeviceScope {
 public:
  DeviceScope(Backend& backend, int device) : backend_(backend), before_(backend.enter(device)) {}
  ~DeviceScope() {
    if (before_.ok()) backend_.leave(before_.value());
  }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  const Status& status() const noexcept { return before_.status(); }

 private:
  Backend& backend_;
  const Result<ThreadDevice> before_;
};

}  // namespace lockstep::internal
