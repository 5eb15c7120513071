// Speed of the reduction kernels, beside memcpy and a plain compiled loop: every type and operator, several
// sizes and shapes.
//   reduce_bench --benchmark_filter='f32/sum'
// Names are type/operator/shape/bytes of one buffer; "touched" counts every byte read or written once, in
// GB/s.
#include <benchmark/benchmark.h>

#include <cstring>
#include <string>
#include <vector>

#include "lib/reduce/copy.hpp"
#include "lib/reduce/reduce.hpp"

namespace lockstep::internal {
namespace {

struct Shape {
  const char* name;
  std::size_t sources;
  std::size_t destinations;
  bool in_place;
};
constexpr Shape kInPlace2{"2to2", 2, 2, true};
constexpr Shape kShapes[] = {kInPlace2,
                             {"4to4", 4, 4, true},
                             {"2to1", 2, 1, false},
                             {"2to2_apart", 2, 2, false},
                             {"8to1", 8, 1, false}};
constexpr std::size_t kSizes[] = {8,         64,      252,     1 << 10,  16 << 10,
                                  256 << 10, 1 << 20, 4 << 20, 25 << 20, 256 << 20};
constexpr std::size_t kOneSize = 1 << 20;

/// Buffers of one shape, touched, and 1 in every byte, so that no float is subnormal or special.
class Buffers {
 public:
  Buffers(const Shape& shape, std::size_t bytes) {
    const std::size_t separate = shape.in_place ? 0 : shape.destinations;
    for (std::size_t i = 0; i < shape.sources + separate; ++i) memory_.emplace_back(bytes, std::byte{1});
    for (std::size_t i = 0; i < shape.sources; ++i) sources.push_back(memory_[i].data());
    for (std::size_t i = 0; i < shape.destinations; ++i) {
      destinations.push_back(memory_[shape.in_place ? i : shape.sources + i].data());
    }
  }
  std::vector<const void*> sources;
  std::vector<void*> destinations;

 private:
  std::vector<std::vector<std::byte>> memory_;
};

void report(benchmark::State& state, const Shape& shape, std::size_t bytes) {
  const auto touched = static_cast<double>(state.iterations() * bytes * (shape.sources + shape.destinations));
  state.counters["touched"] =
      benchmark::Counter(touched, benchmark::Counter::kIsRate, benchmark::Counter::kIs1000);
}

void bench_reduce(benchmark::State& state, DataType type, ReduceOp op, Shape shape, std::size_t bytes) {
  Buffers buffers(shape, bytes);
  // An average of equal values stays what it is, so that repeated calls in place do not drift into
  // subnormals.
  const auto world = static_cast<double>(shape.sources);
  const Reduction reduction{type, op, nullptr, bytes / size_of(type), world};
  for (auto _ : state) {
    reduce(reduction, buffers.sources, buffers.destinations);
    benchmark::ClobberMemory();
  }
  report(state, shape, bytes);
}

/// What a compiler makes of the in-place sum of two f32 buffers.
void bench_plain_loop(benchmark::State& state, std::size_t bytes) {
  Buffers buffers(kInPlace2, bytes);
  float* __restrict x = static_cast<float*>(buffers.destinations[0]);
  float* __restrict y = static_cast<float*>(buffers.destinations[1]);
  for (auto _ : state) {
    for (std::size_t i = 0; i < bytes / sizeof(float); ++i) {
      const float sum = x[i] + y[i];
      x[i] = sum;
      y[i] = sum;
    }
    benchmark::ClobberMemory();
  }
  report(state, kInPlace2, bytes);
}

/// The destination lies `behind` bytes behind the source within their pages.
void bench_copy(benchmark::State& state, void (*copy)(void*, const void*, std::size_t), std::size_t bytes,
                std::uintptr_t behind) {
  constexpr Shape kCopy{"copy", 1, 1, false};
  constexpr std::uintptr_t kPage = 4096;
  Buffers buffers(kCopy, bytes + kPage);
  const auto from = reinterpret_cast<std::uintptr_t>(buffers.sources[0]);
  const auto to = reinterpret_cast<std::uintptr_t>(buffers.destinations[0]);
  void* const destination = static_cast<std::byte*>(buffers.destinations[0]) + (from + behind - to) % kPage;
  for (auto _ : state) {
    copy(destination, buffers.sources[0], bytes);
    benchmark::ClobberMemory();
  }
  report(state, kCopy, bytes);
}

void plain_memcpy(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void library_copy(void* to, const void* from, std::size_t bytes) { copy_bytes(to, from, bytes); }

void register_all() {
  using benchmark::RegisterBenchmark;
  for (const std::size_t bytes : kSizes) {
    const std::string size = "/" + std::to_string(bytes);
    RegisterBenchmark(("memcpy" + size).c_str(), bench_copy, plain_memcpy, bytes, 0);
    RegisterBenchmark(("copy_bytes" + size).c_str(), bench_copy, library_copy, bytes, 0);
    RegisterBenchmark(("memcpy/16_behind" + size).c_str(), bench_copy, plain_memcpy, bytes, 16);
    RegisterBenchmark(("copy_bytes/16_behind" + size).c_str(), bench_copy, library_copy, bytes, 16);
    RegisterBenchmark(("plain_loop/2to2" + size).c_str(), bench_plain_loop, bytes);
    for (const Shape& shape : kShapes) {
      const std::string name = std::string("f32/sum/") + shape.name + size;
      RegisterBenchmark(name.c_str(), bench_reduce, DataType::f32, ReduceOp::sum, shape, bytes);
    }
  }
  for (int t = 0; t < kDataTypeCount; ++t) {
    for (int o = 0; o < static_cast<int>(ReduceOp::premul_sum); ++o) {
      const auto type = static_cast<DataType>(t);
      const auto op = static_cast<ReduceOp>(o);
      if (!check_reduction(type, op).ok() || (type == DataType::f32 && op == ReduceOp::sum)) continue;
      for (const Shape& shape : {kInPlace2, kShapes[4]}) {
        const std::string name = std::string(name_of(type)) + "/" + std::string(name_of(op)) + "/" +
                                 shape.name + "/" + std::to_string(kOneSize);
        RegisterBenchmark(name.c_str(), bench_reduce, type, op, shape, kOneSize);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::internal

int main(int argc, char** argv) {
  lockstep::internal::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("simd", lockstep::internal::simd_target());
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
