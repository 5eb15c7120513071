// Functions of the driver, taken from it at run time: libcuda is never linked, so that the library starts
// where there is none.
#pragma once

#include <cuda.h>

#include <string>

#include "lib/base/status.hpp"

namespace lockstep::internal {

struct CudaDriver {
  decltype(&::cuGetErrorString) get_error_string;
  decltype(&::cuDeviceGetUuid_v2) device_uuid;
  decltype(&::cuDeviceGetAttribute) device_attribute;
  decltype(&::cuDevicePrimaryCtxRetain) retain_context;
  decltype(&::cuDevicePrimaryCtxGetState) context_state;
  decltype(&::cuCtxGetCurrent) current_context;
  decltype(&::cuCtxSetCurrent) set_context;
  decltype(&::cuThreadExchangeStreamCaptureMode) exchange_capture_mode;
  decltype(&::cuModuleGetLoadingMode) loading_mode;
  decltype(&::cuPointerGetAttributes) pointer_attributes;
  decltype(&::cuPointerGetAttribute) pointer_attribute;
  decltype(&::cuMemGetAddressRange) address_range;
  decltype(&::cuStreamBatchMemOp_v2) stream_batch;
  decltype(&::cuStreamGetId) stream_id;
  decltype(&::cuMemGetAllocationGranularity) granularity;
  decltype(&::cuMemCreate) create;
  decltype(&::cuMemRelease) release;
  decltype(&::cuMemAddressReserve) reserve;
  decltype(&::cuMemAddressFree) unreserve;
  decltype(&::cuMemMap) map;
  decltype(&::cuMemUnmap) unmap;
  decltype(&::cuMemSetAccess) set_access;
  decltype(&::cuMemRetainAllocationHandle) retain;
  decltype(&::cuMemExportToShareableHandle) export_handle;
  decltype(&::cuMemImportFromShareableHandle) import_handle;
};

/// Loads the driver and takes its functions; not_supported "no CUDA device: ..." without one. Call once.
Result<CudaDriver> load_cuda_driver();

Status driver_status(const CudaDriver& driver, CUresult result, const std::string& what);

}  // namespace lockstep::internal
