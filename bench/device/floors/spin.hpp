// A kernel that waits for a word and then writes the next: what device_sync modes are made of.
#pragma once

#include <cstdint>

namespace lockstep::bench {

struct SpinArguments {
  std::uint32_t* word;
  std::uint32_t wanted;
};

/// Starts the kernel on a cudaStream_t; gives a cudaError_t. Only where CUDA is built.
int spin_on_cuda(const void* arguments, void* stream);

}  // namespace lockstep::bench
