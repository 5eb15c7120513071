// The header of the ABI that this library has, and how its symbols are made.
//
// As NCCL does it for profilers: pncclX is the function, ncclX a weak alias of it, so that a tool may define
// ncclX itself and call pncclX.
#pragma once

#pragma GCC visibility push(default)
#include <nccl.h>
#pragma GCC visibility pop

#define LOCKSTEP_NCCL_TEXT_OF(x) #x
#define LOCKSTEP_NCCL_TEXT(x) LOCKSTEP_NCCL_TEXT_OF(x)
/// "2.28.9"
#define LOCKSTEP_NCCL_HEADER \
  LOCKSTEP_NCCL_TEXT(NCCL_MAJOR) "." LOCKSTEP_NCCL_TEXT(NCCL_MINOR) "." LOCKSTEP_NCCL_TEXT(NCCL_PATCH)

/// After the definition of pncclNAME.
#define LOCKSTEP_NCCL_ALIAS(name) \
  extern "C"                      \
      __attribute__((weak, alias("pnccl" #name), visibility("default"))) decltype(pnccl##name) nccl##name
