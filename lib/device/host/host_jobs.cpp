// HostBackend: what its streams compute.
#include <cstring>
#include <string>
#include <vector>

#include "lib/device/host/host_backend.hpp"
#include "lib/device/host/host_kernels.hpp"

namespace lockstep::internal {
namespace {

template <typename T>
std::vector<T> owned(std::span<const T> list) {
  return {list.begin(), list.end()};
}

}  // namespace

Status HostBackend::fill(void* destination, std::uint8_t value, std::size_t bytes, DeviceStream stream) {
  return enqueue(stream, [=] { std::memset(destination, value, bytes); });
}

Status HostBackend::reduce(const ReduceJob& job, DeviceStream stream) {
  LOCKSTEP_RETURN_IF_ERROR(check_job(job));
  return enqueue(stream, [job, sources = owned(job.sources), factors = owned(job.factors),
                          destinations = std::vector(job.destinations.begin(), job.destinations.end())] {
    ReduceJob own = job;
    own.sources = sources;
    own.destinations = destinations;
    own.factors = factors;
    host_kernels::reduce(own);
  });
}

Status HostBackend::convert(const ConvertJob& job, DeviceStream stream) {
  LOCKSTEP_RETURN_IF_ERROR(check_job(job));
  return enqueue(stream, [job] { host_kernels::convert(job); });
}

Status HostBackend::quantise(const QuantiseJob& job, DeviceStream stream) {
  LOCKSTEP_RETURN_IF_ERROR(check_job(job));
  return enqueue(stream, [job] { host_kernels::quantise(job); });
}

Status HostBackend::dequantise(const DequantiseJob& job, DeviceStream stream) {
  LOCKSTEP_RETURN_IF_ERROR(check_job(job));
  return enqueue(stream, [job] { host_kernels::dequantise(job); });
}

Status HostBackend::operate(std::span<const WordOperation> operations, DeviceStream stream) {
  return enqueue(stream, [list = owned(operations)] { host_kernels::operate(list); });
}

Status HostBackend::launch(const KernelLaunch& kernel, DeviceStream stream) {
  if (kernel.on_host == nullptr || kernel.argument_bytes > KernelLaunch::kArgumentBytes) {
    return Status(ErrorCode::invalid_argument,
                  std::string("kernel ") + kernel.name + " has no body for the host, or too many arguments");
  }
  const auto* const first = static_cast<const std::byte*>(kernel.arguments);
  return enqueue(stream,
                 [body = kernel.on_host, arguments = std::vector(first, first + kernel.argument_bytes)] {
                   body(arguments.data());
                 });
}

}  // namespace lockstep::internal
