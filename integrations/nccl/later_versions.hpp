// The answer to calls of later versions of NCCL's interface.
#pragma once

namespace lockstep::nccl {

/// ncclInvalidUsage, with a sentence for ncclGetLastError.
int refuse_later_call(const char* function) noexcept;

}  // namespace lockstep::nccl
