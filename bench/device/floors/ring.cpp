#include "bench/device/floors/ring.hpp"

#include <atomic>
#include <thread>

#include "bench/device/floors/spin.hpp"

namespace lockstep::bench {
namespace {

using internal::Backend;
using internal::DeviceStream;
using internal::Status;

bool arrived(std::uint32_t* word, std::uint32_t wanted) {
  return static_cast<std::int32_t>(std::atomic_ref(*word).load(std::memory_order_acquire) - wanted) >= 0;
}

void await_on_host(std::uint32_t* word, std::uint32_t wanted) {
  while (!arrived(word, wanted)) std::this_thread::yield();
}

void spin_on_host(const void* arguments) {
  const auto& a = *static_cast<const SpinArguments*>(arguments);
  await_on_host(a.word, a.wanted);
  std::atomic_ref(*a.word).store(a.wanted + 1, std::memory_order_release);
}

Status pass_by_kernel(Backend& backend, std::uint32_t* word, std::uint32_t wanted, DeviceStream stream) {
  const SpinArguments arguments{word, wanted};
  internal::KernelLaunch launch;
  launch.name = "spin";
  launch.arguments = &arguments;
  launch.argument_bytes = sizeof arguments;
  launch.on_host = spin_on_host;
#ifdef LOCKSTEP_CUDA
  launch.on_cuda = spin_on_cuda;
#endif
  return backend.launch(launch, stream);
}

Status pass_by_stream(Backend& backend, std::uint32_t* word, std::uint32_t wanted, DeviceStream stream) {
  using Kind = internal::WordOperation::Kind;
  const internal::WordOperation both[] = {{Kind::wait, word, wanted}, {Kind::write, word, wanted + 1}};
  return backend.operate(both, stream);
}

Status pass_by_kernel_behind_stream(Backend& backend, std::uint32_t* word, std::uint32_t wanted,
                                    DeviceStream stream) {
  LOCKSTEP_RETURN_IF_ERROR(backend.wait_value(word, wanted, stream));
  return pass_by_kernel(backend, word, wanted, stream);
}

Status pass_by_kernel_behind_host(Backend& backend, std::uint32_t* word, std::uint32_t wanted,
                                  DeviceStream stream) {
  await_on_host(word, wanted);
  LOCKSTEP_RETURN_IF_ERROR(pass_by_kernel(backend, word, wanted, stream));
  return backend.synchronize(stream);
}

Status pass_by_host(Backend& backend, std::uint32_t* word, std::uint32_t wanted, DeviceStream stream) {
  await_on_host(word, wanted);
  LOCKSTEP_RETURN_IF_ERROR(backend.write_value(word, wanted + 1, stream));
  return backend.synchronize(stream);
}

}  // namespace

const char* name_of(Waiting waiting) {
  switch (waiting) {
    case Waiting::kernel:
      return "kernel";
    case Waiting::stream:
      return "stream";
    case Waiting::kernel_behind_stream:
      return "kernel_behind_stream";
    case Waiting::kernel_behind_host:
      return "kernel_behind_host";
    case Waiting::host:
      break;
  }
  return "host";
}

Status pass_on(Backend& backend, Waiting waiting, std::uint32_t* word, std::uint32_t wanted,
               DeviceStream stream) {
  switch (waiting) {
    case Waiting::kernel:
      return pass_by_kernel(backend, word, wanted, stream);
    case Waiting::stream:
      return pass_by_stream(backend, word, wanted, stream);
    case Waiting::kernel_behind_stream:
      return pass_by_kernel_behind_stream(backend, word, wanted, stream);
    case Waiting::kernel_behind_host:
      return pass_by_kernel_behind_host(backend, word, wanted, stream);
    case Waiting::host:
      break;
  }
  return pass_by_host(backend, word, wanted, stream);
}

Status run_ring(Backend& backend, Waiting waiting, std::uint32_t* word, int rank, int ranks,
                std::uint32_t first, int rounds, DeviceStream stream) {
  for (int round = 0; round < rounds; ++round) {
    const auto wanted = first + static_cast<std::uint32_t>(round * ranks + rank);
    LOCKSTEP_RETURN_IF_ERROR(pass_on(backend, waiting, word, wanted, stream));
  }
  return backend.synchronize(stream);
}

}  // namespace lockstep::bench
