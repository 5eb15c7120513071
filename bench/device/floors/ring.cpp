#include "bench/device/floors/ring.hpp"

#include <atomic>
#include <thread>

#include "bench/device/floors/spin.hpp"

namespace lockstep::bench {
namespace {

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

Status pass_by_kernel(const Seat& seat, std::uint32_t* word, std::uint32_t wanted) {
  const SpinArguments arguments{word, wanted};
  internal::KernelLaunch launch;
  launch.name = "spin";
  launch.arguments = &arguments;
  launch.argument_bytes = sizeof arguments;
  launch.on_host = spin_on_host;
#ifdef LOCKSTEP_CUDA
  launch.on_cuda = spin_on_cuda;
#endif
  return seat.backend.launch(launch, seat.stream);
}

Status pass_by_stream(const Seat& seat, std::uint32_t* word, std::uint32_t wanted) {
  using Kind = internal::WordOperation::Kind;
  const internal::WordOperation both[] = {{Kind::wait, word, wanted}, {Kind::write, word, wanted + 1}};
  return seat.backend.operate(both, seat.stream);
}

Status pass_by_kernel_behind_stream(const Seat& seat, std::uint32_t* word, std::uint32_t wanted) {
  LOCKSTEP_RETURN_IF_ERROR(seat.backend.wait_value(word, wanted, seat.stream));
  return pass_by_kernel(seat, word, wanted);
}

Status pass_by_kernel_behind_host(const Seat& seat, std::uint32_t* word, std::uint32_t wanted) {
  await_on_host(word, wanted);
  LOCKSTEP_RETURN_IF_ERROR(pass_by_kernel(seat, word, wanted));
  return seat.backend.synchronize(seat.stream);
}

/// `work` between the stream's wait and its write.
template <typename Work>
Status pass_around(const Seat& seat, std::uint32_t* word, std::uint32_t wanted, Work work) {
  LOCKSTEP_RETURN_IF_ERROR(seat.backend.wait_value(word, wanted, seat.stream));
  LOCKSTEP_RETURN_IF_ERROR(work());
  return seat.backend.write_value(word, wanted + 1, seat.stream);
}

Status pass_by_host(const Seat& seat, std::uint32_t* word, std::uint32_t wanted) {
  await_on_host(word, wanted);
  LOCKSTEP_RETURN_IF_ERROR(seat.backend.write_value(word, wanted + 1, seat.stream));
  return seat.backend.synchronize(seat.stream);
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
    case Waiting::copy_behind_stream:
      return "copy_behind_stream";
    case Waiting::event_behind_stream:
      return "event_behind_stream";
    case Waiting::host:
      break;
  }
  return "host";
}

Status pass_on(const Seat& seat, Waiting waiting, std::uint32_t* word, std::uint32_t wanted) {
  switch (waiting) {
    case Waiting::kernel:
      return pass_by_kernel(seat, word, wanted);
    case Waiting::stream:
      return pass_by_stream(seat, word, wanted);
    case Waiting::kernel_behind_stream:
      return pass_by_kernel_behind_stream(seat, word, wanted);
    case Waiting::kernel_behind_host:
      return pass_by_kernel_behind_host(seat, word, wanted);
    case Waiting::copy_behind_stream:
      return pass_around(seat, word, wanted, [&] {
        return seat.backend.copy(seat.own, seat.own + 1, sizeof *seat.own, seat.stream);
      });
    case Waiting::event_behind_stream:
      return pass_around(seat, word, wanted, [&] { return seat.backend.record(seat.event, seat.stream); });
    case Waiting::host:
      break;
  }
  return pass_by_host(seat, word, wanted);
}

Status run_ring(const Seat& seat, Waiting waiting, std::uint32_t* word, int rank, int ranks,
                std::uint32_t first, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    const auto wanted = first + static_cast<std::uint32_t>(round * ranks + rank);
    LOCKSTEP_RETURN_IF_ERROR(pass_on(seat, waiting, word, wanted));
  }
  return seat.backend.synchronize(seat.stream);
}

}  // namespace lockstep::bench
