// The checked data of nccl-tests, for programs of nccl-tests on the host backend, where its kernels cannot
// run: the functions that its verifiable.h declares, over values that every reduction leaves exact in every
// type.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/nccl/values.h"

namespace {

unsigned hash(std::uint64_t seed, std::uint64_t index) {
  std::uint64_t x = (seed + 1) * 0x9e3779b97f4a7c15u ^ (index + 1) * 0xbf58476d1ce4e5b9u;
  x ^= x >> 29;
  return static_cast<unsigned>(x * 0x94d049bb133111ebu >> 40);
}

constexpr int kPremulSum = ncclNumOps;  // as nccl-tests numbers it

/// What rank `rank` of `ranks` (at most 4) contributes: as in values.c, one rank's averages are made whole.
int contribution(int op, int ranks, int rank, std::uint64_t seed, std::uint64_t index) {
  const unsigned drawn = hash(seed, index);
  if (ranks == 1) return static_cast<int>(drawn % 9);
  if (op == ncclProd) return static_cast<int>(1 + (drawn >> rank) % 2);
  if (op == kPremulSum) return static_cast<int>((drawn >> rank) % 2);
  const int common = static_cast<int>(drawn % 2);
  return common + (rank == ranks - 1 ? ranks * static_cast<int>(drawn / 2 % 2) : 0);
}

int expected(int op, int ranks, std::uint64_t seed, std::uint64_t index) {
  int result = contribution(op, ranks, 0, seed, index);
  for (int rank = 1; rank < ranks; ++rank) {
    const int value = contribution(op, ranks, rank, seed, index);
    if (op == ncclProd) result *= value;
    if (op == ncclMax) result = value > result ? value : result;
    if (op == ncclMin) result = value < result ? value : result;
    if (op == ncclSum || op == ncclAvg) result += value;
    if (op == kPremulSum) result += value * (rank % 2 == 0 ? 1 : 2);
  }
  return op == ncclAvg ? result / ranks : result;
}

}  // namespace

cudaError_t ncclVerifiablePrepareInput(void* elements, std::intptr_t count, int type, int op, int ranks,
                                       int rank, std::uint64_t seed, std::intptr_t first,
                                       cudaStream_t stream) {
  const cudaError_t error = cudaStreamSynchronize(stream);
  for (std::intptr_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::uint64_t>(first + i);
    put_value(static_cast<ncclDataType_t>(type), elements, static_cast<std::size_t>(i),
              contribution(op, ranks, rank, seed, index));
  }
  return error;
}

cudaError_t ncclVerifiablePrepareExpected(void* elements, std::intptr_t count, int type, int op, int ranks,
                                          std::uint64_t seed, std::intptr_t first, cudaStream_t stream) {
  const cudaError_t error = cudaStreamSynchronize(stream);
  for (std::intptr_t i = 0; i < count; ++i) {
    put_value(static_cast<ncclDataType_t>(type), elements, static_cast<std::size_t>(i),
              expected(op, ranks, seed, static_cast<std::uint64_t>(first + i)));
  }
  return error;
}

// What is expected is given, or made here as nccl-tests' own function would.
cudaError_t ncclVerifiableVerify(const void* results, const void* given, std::intptr_t count, int type,
                                 int op, int ranks, std::uint64_t seed, std::intptr_t first,
                                 std::int64_t* wrong, cudaStream_t stream) {
  const std::size_t size = size_of_type(static_cast<ncclDataType_t>(type));
  std::vector<char> wanted(static_cast<std::size_t>(count) * size);
  const cudaError_t error =
      ncclVerifiablePrepareExpected(wanted.data(), count, type, op, ranks, seed, first, stream);
  const char* const expectation = given != nullptr ? static_cast<const char*>(given) : wanted.data();
  *wrong = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const char* const result = static_cast<const char*>(results) + i * size;
    *wrong += std::memcmp(result, expectation + i * size, size) != 0;
  }
  return error;
}
