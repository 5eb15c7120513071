// HostBackend: captures, and the graphs that they become.
#include <utility>

#include "lib/device/host/host_backend.hpp"

namespace lockstep::internal {

Result<bool> HostBackend::capturing(DeviceStream handle) {
  const Served served = serve();
  const Result<std::shared_ptr<HostStream>> stream = stream_of(handle);
  if (!stream.ok()) return stream.status();
  return stream.value()->recording();
}

Status HostBackend::begin_capture(DeviceStream handle, CaptureScope scope) {
  const Served served = serve();
  if (handle == nullptr)
    return Status(ErrorCode::invalid_argument, "the default stream cannot be captured: create one");
  Result<std::shared_ptr<HostStream>> stream = stream_of(handle);
  if (!stream.ok()) return stream.status();
  if (!stream.value()->begin_recording())
    return Status(ErrorCode::invalid_argument, "the stream is being captured already");
  captures_.begin(handle, scope);
  return Status();
}

Result<DeviceGraph> HostBackend::end_capture(DeviceStream handle) {
  const Served served = serve();
  Result<std::shared_ptr<HostStream>> stream = stream_of(handle);
  if (!stream.ok()) return stream.status();
  auto tasks = stream.value()->end_recording();
  if (!tasks) return Status(ErrorCode::invalid_argument, "the stream is not being captured");
  LOCKSTEP_RETURN_IF_ERROR(captures_.end(handle));
  auto graph = std::make_shared<const HostGraph>(HostGraph{std::move(*tasks)});
  const std::lock_guard lock(mutex_);
  const DeviceGraph made = const_cast<HostGraph*>(graph.get());
  graphs_.emplace(made, std::move(graph));
  return made;
}

Status HostBackend::replay(DeviceGraph handle, DeviceStream stream) {
  std::shared_ptr<const HostGraph> graph;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = graphs_.find(handle); found != graphs_.end()) graph = found->second;
  }
  if (graph == nullptr)
    return Status(ErrorCode::invalid_argument, "no such graph: it was destroyed, or is of another backend");
  return enqueue(stream, [graph] {
    for (const HostStream::Task& task : graph->tasks) task();
  });
}

Status HostBackend::destroy_graph(DeviceGraph handle) {
  const Served served = serve();
  const std::lock_guard lock(mutex_);
  if (graphs_.erase(handle) == 1) return Status();
  return Status(ErrorCode::invalid_argument, "this graph was not made by end_capture(), or is destroyed");
}

}  // namespace lockstep::internal
