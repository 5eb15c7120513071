// Functions that run on the host and, where nvcc compiles them, in kernels.
#pragma once

#ifdef __CUDACC__
#define LOCKSTEP_BOTH __host__ __device__ __forceinline__
#else
#define LOCKSTEP_BOTH inline
#endif

#ifdef __CUDA_ARCH__
#define LOCKSTEP_UNROLL _Pragma("unroll")
#else
#define LOCKSTEP_UNROLL
#endif
