// UcxContext: what a process holds of UCX.
#pragma once

#include "transports/ucx/ucx_library.hpp"

namespace lockstep::internal {

class UcxContext {
 public:
  UcxContext(const UcxLibrary& library, ucp_context_h context) : ucx(library), handle(context) {}
  ~UcxContext() { ucx.cleanup(handle); }
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;

  const UcxLibrary& ucx;
  const ucp_context_h handle;
};

}  // namespace lockstep::internal
