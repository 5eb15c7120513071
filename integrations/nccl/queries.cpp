// What a program can ask: versions, errors, and facts of a communicator.
#include <string>

#include "integrations/nccl/comm.hpp"
#include "integrations/nccl/result.hpp"

using namespace lockstep::nccl;

ncclResult_t pncclGetVersion(int* version) {
  return guarded("ncclGetVersion", [&] { required(version, "version") = NCCL_VERSION_CODE; });
}
LOCKSTEP_NCCL_ALIAS(GetVersion);

/// Whose library this is, for those who want to know which one they have: ncclGetVersion tells the version of
/// the interface.
extern "C" __attribute__((visibility("default"))) const char* lockstep_nccl_version() {
  return "lockstep " LOCKSTEP_VERSION ", NCCL interface " LOCKSTEP_NCCL_HEADER;
}

const char* pncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (ncclGetLastError says more)";
    case ncclSystemError:
      return "unhandled system error (ncclGetLastError says more)";
    case ncclInternalError:
      return "internal error (a bug in lockstep; ncclGetLastError says more)";
    case ncclInvalidArgument:
      return "invalid argument (ncclGetLastError says more)";
    case ncclInvalidUsage:
      return "invalid usage (ncclGetLastError says more)";
    case ncclRemoteError:
      return "remote process exited, aborted, or was not reached in time (ncclGetLastError says more)";
    case ncclInProgress:
      return "operation in progress";
    default:
      return "unknown result code";
  }
}
LOCKSTEP_NCCL_ALIAS(GetErrorString);

/// Of the communicator, if it is one and has one. A handle that is none is no new error: it is asked for the
/// text of one.
static std::string text_of(ncclComm_t comm) {
  std::string text;
  try {
    if (comm != nullptr) text = Handles::find(comm)->text();
  } catch (const Refusal&) {
    // As without a communicator.
  }
  return text.empty() ? last_text() : text;
}

// The text lives until the thread's next call of this function.
const char* pncclGetLastError(ncclComm_t comm) {
  thread_local std::string text;
  guarded("ncclGetLastError", [&] { text = text_of(comm); });
  return text.c_str();
}
LOCKSTEP_NCCL_ALIAS(GetLastError);

ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* asyncError) {
  return guarded("ncclCommGetAsyncError",
                 [&] { required(asyncError, "asyncError") = Handles::find(comm)->state(); });
}
LOCKSTEP_NCCL_ALIAS(CommGetAsyncError);

ncclResult_t pncclCommCount(const ncclComm_t comm, int* count) {
  return guarded("ncclCommCount", [&] { required(count, "count") = Handles::find(comm)->size(); });
}
LOCKSTEP_NCCL_ALIAS(CommCount);

ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int* device) {
  return guarded("ncclCommCuDevice", [&] { required(device, "device") = Handles::find(comm)->device(); });
}
LOCKSTEP_NCCL_ALIAS(CommCuDevice);

ncclResult_t pncclCommUserRank(const ncclComm_t comm, int* rank) {
  return guarded("ncclCommUserRank", [&] { required(rank, "rank") = Handles::find(comm)->rank(); });
}
LOCKSTEP_NCCL_ALIAS(CommUserRank);
