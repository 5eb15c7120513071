#include "bench/device/check.hpp"

#include "bench/device/pattern.hpp"

namespace lockstep::bench {
namespace {

/// One period of the widest type.
constexpr std::size_t kTableBytes = 8192 * 16;

void pattern_on_host(const void* arguments) {
  const auto& a = *static_cast<const PatternArguments*>(arguments);
  const std::uint64_t wrong = run_pattern(a, 0, 1);
  if (a.wrong != nullptr) *a.wrong += wrong;
}

}  // namespace

DeviceCheck::DeviceCheck(Stream stream)
    : backend_(internal::device_backend_or_throw()),
      stream_(stream),
      table_(kTableBytes),
      wrong_(sizeof(std::uint64_t)) {}

void DeviceCheck::launch(void* buffer, std::uint64_t elements, DataType type,
                         const std::vector<std::byte>& period, std::uint64_t* wrong) {
  if (elements == 0) return;
  upload(table_.data(), period, stream_);
  const auto size = static_cast<std::uint32_t>(size_of(type));
  const PatternArguments arguments{buffer, table_.data(), elements, period.size() / size, size, wrong};
  internal::KernelLaunch kernel;
  kernel.name = "pattern";
  kernel.arguments = &arguments;
  kernel.argument_bytes = sizeof arguments;
  kernel.on_host = pattern_on_host;
#ifdef LOCKSTEP_CUDA
  kernel.on_cuda = pattern_on_cuda;
#endif
  backend_.launch(kernel, stream_).throw_if_error();
}

void DeviceCheck::fill(const Data& data, const Call& call, std::uint64_t round, void* input) {
  launch(input, call.count * call.operation->input_blocks(call.world), call.type, data.input_period(round),
         nullptr);
  device::synchronize(stream_);
}

std::uint64_t DeviceCheck::count_wrong(const Data& data, const Call& call, std::uint64_t round,
                                       const void* output) {
  device::fill(wrong_.data(), 0, sizeof(std::uint64_t), stream_);
  auto* block = static_cast<std::byte*>(const_cast<void*>(output));
  for (std::uint64_t b = 0; b < call.operation->output_blocks(call.world); ++b) {
    launch(block, call.count, call.type, data.output_period(b, round),
           reinterpret_cast<std::uint64_t*>(wrong_.data()));
    block += call.count * size_of(call.type);
  }
  std::uint64_t wrong = 0;
  download(std::as_writable_bytes(std::span(&wrong, 1)), wrong_.data(), stream_);
  return wrong;
}

}  // namespace lockstep::bench
