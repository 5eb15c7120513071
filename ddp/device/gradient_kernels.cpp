#include "ddp/device/gradient_kernels.hpp"

#include <algorithm>
#include <cmath>

#include "ddp/bucket_plan.hpp"
#include "ddp/device/gradient_pass.hpp"
#include "lib/base/element_types.hpp"

namespace lockstep::internal {
namespace {

using gradient_pass::Arguments;
using gradient_pass::kFolds;
using gradient_pass::kSlots;

// Bodies for the host backend: every thread of the kernel in turn.
void scrub_on_host(const void* arguments) {
  gradient_pass::scrub(*static_cast<const Arguments*>(arguments), 0, 1);
}
void hash_on_host(const void* arguments) {
  gradient_pass::hash(*static_cast<const Arguments*>(arguments), 0, 1);
}
void square_on_host(const void* arguments) {
  for (unsigned slot = 0; slot < kSlots; ++slot)
    gradient_pass::square(*static_cast<const Arguments*>(arguments), slot);
}
void fold_on_host(const void* arguments) {
  const auto& a = *static_cast<const Arguments*>(arguments);
  for (unsigned thread = 0; thread < kFolds; ++thread) gradient_pass::fold(a, thread);
  gradient_pass::finish_fold(a, [](double x) { return std::sqrt(x); });
}
void scale_on_host(const void* arguments) {
  gradient_pass::scale(*static_cast<const Arguments*>(arguments), 0, 1);
}

#ifdef LOCKSTEP_CUDA
using gradient_pass::fold_on_cuda;
using gradient_pass::hash_on_cuda;
using gradient_pass::load_on_cuda;
using gradient_pass::scale_on_cuda;
using gradient_pass::scrub_on_cuda;
using gradient_pass::square_on_cuda;
#else
constexpr int (*scrub_on_cuda)(const void*, void*) = nullptr;
constexpr int (*square_on_cuda)(const void*, void*) = nullptr;
constexpr int (*fold_on_cuda)(const void*, void*) = nullptr;
constexpr int (*hash_on_cuda)(const void*, void*) = nullptr;
Status load_on_cuda() { return {}; }
constexpr int (*scale_on_cuda)(const void*, void*) = nullptr;
#endif

void launch(Backend& backend, const char* name, void (*on_host)(const void*),
            int (*on_cuda)(const void*, void*), const Arguments& arguments, DeviceStream stream) {
  KernelLaunch kernel;
  kernel.name = name;
  kernel.arguments = &arguments;
  kernel.argument_bytes = sizeof arguments;
  kernel.on_host = on_host;
  kernel.on_cuda = on_cuda;
  backend.launch(kernel, stream).throw_if_error();
}

/// Before anything waits on a stream: a first start may wait for all of them.
void load(Backend& backend, int device) {
  if (backend.is_host()) return;
  const DeviceScope scope(backend, device);
  scope.status().throw_if_error();
  load_on_cuda().throw_if_error();
}

template <typename T>
T or_throw(Result<T> result) {
  result.status().throw_if_error();
  return *result;
}

}  // namespace

GradientKernels::GradientKernels(Backend& backend, int device, std::size_t buckets, std::size_t parameters)
    : backend_(backend), device_(device), buckets_(buckets) {
  load(backend, device);
  const DeviceScope scope(backend, device);
  scope.status().throw_if_error();
  const std::size_t bytes = std::max(buckets, parameters) * sizeof(std::uint64_t);
  memory_ = static_cast<std::byte*>(
      or_throw(backend.allocate(device, bytes + (kSlots + 1) * sizeof(double), MemoryKind::plain)));
  words_ = reinterpret_cast<std::uint64_t*>(memory_);
  slots_ = reinterpret_cast<double*>(memory_ + bytes);
  factor_ = slots_ + kSlots;
  auto pinned = backend.allocate_pinned(bytes + sizeof(std::uint64_t));
  if (!pinned.ok()) static_cast<void>(backend.free(memory_));
  read_ = static_cast<std::uint64_t*>(or_throw(std::move(pinned)));
}

GradientKernels::~GradientKernels() {
  const DeviceScope scope(backend_, device_);  // Pinned memory is freed when no stream of this one is held.
  static_cast<void>(backend_.free(memory_));
  static_cast<void>(backend_.free_pinned(read_));
}

void GradientKernels::scrub(std::size_t index, const BucketPlan::Bucket& bucket, std::byte* data,
                            DeviceStream stream) {
  Arguments a{};
  a.type = bucket.type;
  a.data = data;
  a.count = bucket.count;
  a.word = words_ + index;
  backend_.fill(a.word, 0xff, sizeof *a.word, stream).throw_if_error();
  launch(backend_, "scrub", scrub_on_host, scrub_on_cuda, a, stream);
}

/// Neighbours with gradients are one run: a kernel each would be many.
void GradientKernels::look(std::size_t index, const BucketPlan::Bucket& bucket, std::byte* data,
                           std::span<const std::uint8_t> has_gradient, DeviceStream stream) {
  Arguments a{};
  a.type = bucket.type;
  a.word = words_ + index;
  a.keep = true;
  backend_.fill(a.word, 0xff, sizeof *a.word, stream).throw_if_error();
  const auto look_at_run = [&] {
    if (a.count == 0) return;
    a.data = data + a.base * size_of(bucket.type);
    launch(backend_, "look", scrub_on_host, scrub_on_cuda, a, stream);
    a.count = 0;
  };
  for (const GradientPart& part : bucket.parts) {
    if (has_gradient[part.parameter] == 0) {
      look_at_run();
      continue;
    }
    if (a.count == 0) a.base = part.offset;
    a.count = part.offset + part.count - a.base;
  }
  look_at_run();
}

std::vector<std::uint64_t> GradientKernels::found(DeviceStream stream) { return read(buckets_, stream); }

std::vector<std::uint64_t> GradientKernels::read(std::size_t words, DeviceStream stream) {
  const std::size_t bytes = words * sizeof(std::uint64_t);
  if (bytes > 0) backend_.copy(read_, words_, bytes, stream).throw_if_error();
  backend_.synchronize(stream).throw_if_error();
  return {read_, read_ + words};
}

std::vector<std::uint64_t> GradientKernels::hash_values(std::span<const Parameter> parameters,
                                                        DeviceStream stream) {
  if (parameters.empty()) return {};
  backend_.fill(words_, 0, parameters.size() * sizeof *words_, stream).throw_if_error();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    Arguments a{};
    a.type = parameters[i].type;
    a.data = parameters[i].value;
    a.count = element_count(parameters[i]).value();
    a.word = words_ + i;
    if (a.count > 0) launch(backend_, "hash", hash_on_host, hash_on_cuda, a, stream);
  }
  return read(parameters.size(), stream);
}

void GradientKernels::scale(const BucketPlan::Bucket& bucket, std::byte* data, double factor,
                            DeviceStream stream) {
  const void* const source = data;
  void* const destination = data;
  const ScaleFactor scale{factor};
  const Parts parts = parts_of(bucket.type);  // Which are scaled alike.
  ReduceJob job{parts.type, ReduceOp::sum, parts.count * bucket.count, {&source, 1}, {&destination, 1}};
  job.factors = {&scale, 1};
  backend_.reduce(job, stream).throw_if_error();
}

void GradientKernels::clip(const BucketPlan& plan, std::span<std::byte* const> data, double max_norm,
                           double* norm, DeviceStream stream) {
  backend_.fill(slots_, 0, kSlots * sizeof(double), stream).throw_if_error();
  Arguments a{};
  a.slots = slots_;
  a.factor = factor_;
  a.max_norm = max_norm;
  a.norm = norm;
  const auto for_each_bucket = [&](const auto& what) {
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
      a.type = plan.buckets[b].type;
      a.data = data[b];
      a.count = plan.buckets[b].count;
      if (a.count > 0) what();
    }
  };
  for_each_bucket([&] { launch(backend_, "square", square_on_host, square_on_cuda, a, stream); });
  launch(backend_, "fold", fold_on_host, fold_on_cuda, a, stream);
  for_each_bucket([&] { launch(backend_, "scale", scale_on_host, scale_on_cuda, a, stream); });
}

}  // namespace lockstep::internal
