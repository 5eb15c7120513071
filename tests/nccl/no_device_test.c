/* Without a driver: the library loads, and a call gives one clear error. Needs a machine without one. */
#include <string.h>

#include "ranks.h"

int main(void) {
  ncclComm_t comm = NULL;
  ncclUniqueId id;
  void* memory = NULL;
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess) return 77; /* skipped */
  NCCL(ncclGetUniqueId(&id));
  REFUSED(ncclCommInitRank(&comm, 1, id, 0), ncclUnhandledCudaError, "no CUDA device");
  REFUSED(ncclCommInitAll(&comm, 1, NULL), ncclUnhandledCudaError, "no CUDA device");
  REFUSED(ncclMemAlloc(&memory, 8), ncclUnhandledCudaError, "no CUDA device");
  CHECK(comm == NULL && memory == NULL, "something was made of nothing");
  return 0;
}
