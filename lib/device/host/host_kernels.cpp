#include "lib/device/host/host_kernels.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "lib/base/element_types.hpp"
#include "lib/base/env.hpp"
#include "lib/reduce/convert.hpp"
#include "lib/reduce/element.hpp"
#include "lib/reduce/reduce.hpp"

namespace lockstep::internal::host_kernels {
namespace {

/// Scaled copies of the sources are made of so many elements at a time.
constexpr std::size_t kScaledBlock = 4096;

constexpr int kBusyPolls = 200;
constexpr auto kPollPause = std::chrono::microseconds(20);

template <typename T>
T read(const void* from) {
  return *static_cast<const T*>(from);
}

double value_of(const ScaleFactor& factor, DataType type) {
  if (factor.device == nullptr) return factor.value;
  double value = 0;
  const auto read_as = [&]<class Element>(std::uint64_t) {
    value = Element::load(read<typename Element::Stored>(factor.device));
  };
  // Integers are not read as such, and check_job() lets no others have factors.
  if (!element::with_floats(type, 1, read_as)) std::abort();
  return value;
}

void scale(DataType type, const void* from, std::byte* to, std::size_t count, const ScaleFactor& factor) {
  if (factor.device == nullptr || !is_integer(type))
    return scale_copy(type, from, to, count, value_of(factor, type));
  // A double does not hold every integer.
  for (std::size_t i = 0; i < count; ++i) std::memcpy(to + i * size_of(type), factor.device, size_of(type));
  const void* const both[] = {from, to};
  void* const destination = to;
  internal::reduce({.type = type, .op = ReduceOp::prod, .count = count}, both, {&destination, 1});
}

void reduce_scaled(const ReduceJob& job, const Reduction& whole) {
  const std::size_t size = size_of(job.type), sources = job.sources.size();
  std::vector<std::byte> scaled(sources * kScaledBlock * size);
  std::vector<const void*> from(sources);
  std::vector<void*> to(job.destinations.size());
  Reduction part = whole;
  for (std::size_t done = 0; done < job.count; done += part.count) {
    part.count = std::min(kScaledBlock, job.count - done);
    for (std::size_t s = 0; s < sources; ++s) {
      std::byte* const block = scaled.data() + s * kScaledBlock * size;
      scale(job.type, static_cast<const std::byte*>(job.sources[s]) + done * size, block, part.count,
            job.factors[s]);
      from[s] = block;
    }
    for (std::size_t d = 0; d < to.size(); ++d) {
      to[d] = static_cast<std::byte*>(job.destinations[d]) + done * size;
    }
    internal::reduce(part, from, to);
  }
}

bool reached(const WordOperation& wait) {
  const std::uint32_t now = std::atomic_ref(*wait.where).load(std::memory_order_acquire);
  return static_cast<std::int32_t>(now - wait.value) >= 0;
}

}  // namespace

void reduce(const ReduceJob& job) {
  const Reduction whole{.type = job.type, .op = job.op, .count = job.count, .divisor = job.divisor};
  if (job.count == 0 || (job.permit != nullptr && *job.permit == 0)) return;
  if (job.factors.empty()) return internal::reduce(whole, job.sources, job.destinations);
  reduce_scaled(job, whole);
}

void convert(const ConvertJob& job) {
  if (job.from == DataType::f32) {
    narrow(job.to, static_cast<const float*>(job.input), job.output, job.count, job.factor);
  } else {
    widen(job.from, job.input, static_cast<float*>(job.output), job.count, job.factor);
  }
}

void quantise(const QuantiseJob& job) {
  internal::quantise(job.type, job.input, job.count, job.block, job.scales, job.codes);
}

void dequantise(const DequantiseJob& job) {
  internal::dequantise(job.type, job.scales, job.codes, job.count, job.block, job.factor, job.output,
                       job.add ? Into::add : Into::replace);
}

void pause_poll(int polls) {
  if (polls < kBusyPolls) {
    ::sched_yield();
  } else {
    sleep_for(kPollPause);
  }
}

void operate(std::span<const WordOperation> operations) {
  for (const WordOperation& operation : operations) {
    if (operation.kind == WordOperation::Kind::wait) {
      for (int polls = 0; !reached(operation); ++polls) pause_poll(polls);
    } else {
      std::atomic_ref(*operation.where).store(operation.value, std::memory_order_release);
    }
  }
}

}  // namespace lockstep::internal::host_kernels
