#include "collectives/device/write_guard.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <utility>

#include "collectives/device/patience.hpp"
#include "collectives/device/stream_runner.hpp"

namespace lockstep::internal {
namespace {

// In a word's line, beside those of the modes.
constexpr std::uint32_t kWritesAt = 32, kClosedAt = 96;
/// How long a look may take to get to the own device: a stream that waits may stand before it on the same
/// connection, which is let pass afterwards.
constexpr Nanos kPatience = 2'000'000'000;
/// What is given the kernels of a process that has ended: it is not sure that they end with it (MPS).
constexpr Nanos kAfterlife = 500'000'000;
/// Between two looks.
constexpr std::chrono::milliseconds kLookAgain{1};

}  // namespace

Result<std::unique_ptr<WriteGuard>> WriteGuard::make(Backend& backend, int device, int rank,
                                                     const std::vector<std::byte*>& words,
                                                     std::function<bool(int member)> has_ended) {
  LOCKSTEP_RETURN_IF_ERROR(sync::load(backend, sync::Kernels::permits));
  sync::PermitArguments arguments{};
  arguments.rank = rank;
  arguments.world = static_cast<int>(words.size());
  std::copy(words.begin(), words.end(), arguments.words);
  arguments.stride = kWordStride;
  arguments.writes_at = kWritesAt;
  arguments.closed_at = kClosedAt;
  auto permit = backend.allocate(device, sizeof *arguments.permit);
  if (!permit.ok()) return permit.status();
  arguments.permit = static_cast<std::uint32_t*>(*permit);
  std::unique_ptr<WriteGuard> guard(new WriteGuard(backend, arguments, std::move(has_ended)));
  auto signals = backend.allocate_pinned(sizeof(Signals));
  if (!signals.ok()) return signals.status();
  guard->signals_ = static_cast<Signals*>(*signals);
  guard->arguments_.writers = guard->signals_->writers;
  return guard;
}

WriteGuard::~WriteGuard() {
  static_cast<void>(backend_.free(arguments_.permit));
  if (signals_ != nullptr) static_cast<void>(backend_.free_pinned(signals_));
}

/// The stream goes no further before end(): a process that is stopped in between has not entered.
Status WriteGuard::hold(DeviceStream stream) {
  auto captured = backend_.capturing(stream);
  if (!captured.ok()) return captured.status();
  return *captured ? Status() : backend_.wait_value(&signals_->go, ++parts_, stream);
}

Status WriteGuard::end(DeviceStream stream) {
  const Status status = sync::leave(backend_, arguments_, stream);
  std::atomic_ref(signals_->go).store(parts_, std::memory_order_release);
  return status;
}

Status WriteGuard::close(DeviceStream stream, Nanos longest) {
  if (closed_) return {};
  closed_ = true;
  for (const Nanos begun = real_env().now();; sleep_for(kLookAgain)) {
    LOCKSTEP_RETURN_IF_ERROR(sync::close(backend_, arguments_, stream));
    LOCKSTEP_RETURN_IF_ERROR(await_stream(backend_, stream, end_after(kPatience)));
    const Nanos waited = real_env().now() - begun;
    const int member = writer(waited);
    if (member < 0) return {};
    if (waited > longest)
      return Status(ErrorCode::timeout, "a kernel of rank " + std::to_string(member) + " has not ended",
                    member);
  }
}

/// One that is to be waited for, or -1.
int WriteGuard::writer(Nanos waited) const {
  for (int member = 0; member < arguments_.world; ++member) {
    if (std::atomic_ref(signals_->writers[member]).load(std::memory_order_acquire) == 0) continue;
    if (waited < kAfterlife || !has_ended_(member)) return member;
  }
  return -1;
}

}  // namespace lockstep::internal
