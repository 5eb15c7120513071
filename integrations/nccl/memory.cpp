// Device memory: allocation, and registration for operations without staging.
#include "integrations/nccl/comm.hpp"
#include "integrations/nccl/devices.hpp"
#include "integrations/nccl/group.hpp"
#include "integrations/nccl/result.hpp"

using namespace lockstep::nccl;

ncclResult_t pncclMemAlloc(void** ptr, size_t size) {
  return guarded("ncclMemAlloc", [&] {
    required(ptr, "ptr") = nullptr;
    if (size > 0) *ptr = lockstep::allocate_device(size, current_device());
  });
}
LOCKSTEP_NCCL_ALIAS(MemAlloc);

ncclResult_t pncclMemFree(void* ptr) {
  return guarded("ncclMemFree", [&] { lockstep::free_device(ptr); });
}
LOCKSTEP_NCCL_ALIAS(MemFree);

ncclResult_t pncclCommRegister(const ncclComm_t comm, void* buff, size_t size, void** handle) {
  return guarded("ncclCommRegister", [&] {
    const auto owner = Handles::find(comm);
    required(handle, "handle") = nullptr;
    *handle = owner->register_buffer(buff, size);
  });
}
LOCKSTEP_NCCL_ALIAS(CommRegister);

ncclResult_t pncclCommDeregister(const ncclComm_t comm, void* handle) {
  return guarded("ncclCommDeregister", [&] {
    const auto owner = Handles::find(comm);
    if (handle != nullptr) owner->deregister(handle);
  });
}
LOCKSTEP_NCCL_ALIAS(CommDeregister);

ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win,
                                     int winFlags) {
  return grouped("ncclCommWindowRegister", [&] {
    const auto owner = Handles::find(comm);
    required(win, "win") = nullptr;
    if ((winFlags & ~NCCL_WIN_COLL_SYMMETRIC) != 0)
      throw invalid_argument("winFlags has bits that nccl.h does not name");
    owner->collectives();
    const bool symmetric = (winFlags & NCCL_WIN_COLL_SYMMETRIC) != 0;
    return Group::current().add({owner,
                                 owner,
                                 true,
                                 "ncclCommWindowRegister",
                                 [=] { *win = owner->register_window(buff, size, symmetric); },
                                 {}});
  });
}
LOCKSTEP_NCCL_ALIAS(CommWindowRegister);

ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  return guarded("ncclCommWindowDeregister", [&] {
    const auto owner = Handles::find(comm);
    if (win != nullptr) owner->deregister(win);
  });
}
LOCKSTEP_NCCL_ALIAS(CommWindowDeregister);
