// What later versions of NCCL (to 2.30) added to the interface, and what they take away. A program that was
// built with their header finds the symbols, and is told by each call that this library has it not.
//
// Neither arguments nor types are named, because the installed nccl.h may or may not know these functions: it
// is not included here. A function that ignores its arguments may be called with any.
#include "integrations/nccl/later_versions.hpp"

#define LOCKSTEP_NCCL_LATER(name)                                       \
  extern "C" __attribute__((visibility("default"))) int pnccl##name() { \
    return lockstep::nccl::refuse_later_call("nccl" #name);             \
  }                                                                     \
  extern "C" __attribute__((visibility("default"), weak, alias("pnccl" #name))) int nccl##name()

// 2.29
LOCKSTEP_NCCL_LATER(CommGetUniqueId);
LOCKSTEP_NCCL_LATER(CommGrow);
LOCKSTEP_NCCL_LATER(CommMemStats);
LOCKSTEP_NCCL_LATER(CommQueryProperties);
LOCKSTEP_NCCL_LATER(CommResume);
LOCKSTEP_NCCL_LATER(CommSuspend);
LOCKSTEP_NCCL_LATER(GetLsaDevicePointer);
LOCKSTEP_NCCL_LATER(GetLsaMultimemDevicePointer);
LOCKSTEP_NCCL_LATER(GetMultimemDevicePointer);
LOCKSTEP_NCCL_LATER(GetPeerDevicePointer);
LOCKSTEP_NCCL_LATER(GinInboxA2ACreateRequirement);
LOCKSTEP_NCCL_LATER(GinOutboxCreateRequirement);
LOCKSTEP_NCCL_LATER(PutSignal);
LOCKSTEP_NCCL_LATER(Signal);
LOCKSTEP_NCCL_LATER(WaitSignal);
LOCKSTEP_NCCL_LATER(WinGetUserPtr);
// 2.30
LOCKSTEP_NCCL_LATER(ParamBind);
LOCKSTEP_NCCL_LATER(ParamDumpAll);
LOCKSTEP_NCCL_LATER(ParamGet);
LOCKSTEP_NCCL_LATER(ParamGetAllParameterKeys);
LOCKSTEP_NCCL_LATER(ParamGetI16);
LOCKSTEP_NCCL_LATER(ParamGetI32);
LOCKSTEP_NCCL_LATER(ParamGetI64);
LOCKSTEP_NCCL_LATER(ParamGetI8);
LOCKSTEP_NCCL_LATER(ParamGetParameter);
LOCKSTEP_NCCL_LATER(ParamGetStr);
LOCKSTEP_NCCL_LATER(ParamGetU16);
LOCKSTEP_NCCL_LATER(ParamGetU32);
LOCKSTEP_NCCL_LATER(ParamGetU64);
LOCKSTEP_NCCL_LATER(ParamGetU8);

// Macros in some headers. Nothing is read from NCCL's logging variables, so there is nothing to read again.
extern "C" __attribute__((visibility("default"))) void pncclResetDebugInit() {}
extern "C" __attribute__((visibility("default"), weak, alias("pncclResetDebugInit"))) void
ncclResetDebugInit();
extern "C" __attribute__((visibility("default"))) void ncclResetDebugInitInternal() {}
