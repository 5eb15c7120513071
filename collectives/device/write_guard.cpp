#include "collectives/device/write_guard.hpp"

#include <algorithm>
#include <atomic>

#include "collectives/device/patience.hpp"
#include "collectives/device/stream_runner.hpp"

namespace lockstep::internal {
namespace {

// In a word's line, beside those of the modes.
constexpr std::uint32_t kWritesAt = 32, kClosedAt = 96;
/// A writer's kernels are in its stream already: they end in milliseconds, unless its process died in them.
constexpr std::uint64_t kPatience = 500'000'000;

}  // namespace

Result<std::unique_ptr<WriteGuard>> WriteGuard::make(Backend& backend, int device, int rank,
                                                     const std::vector<std::byte*>& words) {
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
  std::unique_ptr<WriteGuard> guard(new WriteGuard(backend, arguments));
  auto signals = backend.allocate_pinned(sizeof(Signals));
  if (!signals.ok()) return signals.status();
  guard->signals_ = static_cast<Signals*>(*signals);
  guard->arguments_.bounds = {&guard->signals_->abort, &guard->signals_->report, kPatience};
  return guard;
}

WriteGuard::~WriteGuard() {
  static_cast<void>(backend_.free(arguments_.permit));
  if (signals_ != nullptr) static_cast<void>(backend_.free_pinned(signals_));
}

/// The stream goes no further before end(): a process that is stopped in between has not entered.
Status WriteGuard::begin(DeviceStream stream) {
  auto captured = backend_.capturing(stream);
  if (!captured.ok()) return captured.status();
  if (!*captured) LOCKSTEP_RETURN_IF_ERROR(backend_.wait_value(&signals_->go, ++parts_, stream));
  return sync::enter(backend_, arguments_, stream);
}

Status WriteGuard::end(DeviceStream stream) {
  const Status status = sync::leave(backend_, arguments_, stream);
  std::atomic_ref(signals_->go).store(parts_, std::memory_order_release);
  return status;
}

Status WriteGuard::close(DeviceStream stream) {
  if (closed_) return {};
  closed_ = true;
  LOCKSTEP_RETURN_IF_ERROR(sync::close(backend_, arguments_, stream));
  return await_stream(backend_, stream, end_after(2 * kPatience));
}

}  // namespace lockstep::internal
