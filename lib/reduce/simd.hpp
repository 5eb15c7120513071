// Which instruction sets the kernels are compiled for. Included first by every file that uses Highway's
// foreach_target.
#pragma once

// Each target multiplies compile time. On x86 we keep SSE4, AVX2 and AVX-512 beside the baseline.
// SVE vectors have no fixed size and bring nothing over NEON to a loop that waits for memory.
#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#endif
