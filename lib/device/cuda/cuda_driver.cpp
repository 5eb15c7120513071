#include "lib/device/cuda/cuda_driver.hpp"

#include <cuda_runtime_api.h>

#include "lib/base/dynamic_library.hpp"
#include "lib/device/driver_variables.hpp"

namespace lockstep::internal {
namespace {

Status no_device(const std::string& why) {
  return Status(ErrorCode::not_supported,
                "no CUDA device: " + why + ", or set LOCKSTEP_DEVICE_BACKEND=host to develop without a GPU");
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

/// Takes functions as of one version of CUDA, by their names in its documentation.
class Functions {
 public:
  template <typename Function>
  void get(Function& function, const char* name) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t error =
        ::cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result);
    if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) missing_ = name;
    function = reinterpret_cast<Function>(found);
  }
  const char* missing() const { return missing_; }

 private:
  static constexpr unsigned kVersion = 12000;
  const char* missing_ = nullptr;
};

Status check_devices() {
  int count = 0;
  const cudaError_t error = ::cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver) {
    int driver = 0;
    static_cast<void>(::cudaDriverGetVersion(&driver));
    return no_device("the driver supports CUDA " + version_text(driver) + ", this lockstep needs " +
                     version_text(CUDART_VERSION) + ". Install a newer driver");
  }
  if (error != cudaSuccess) {
    return no_device(std::string("the driver says \"") + ::cudaGetErrorString(error) +
                     "\". Look at nvidia-smi and CUDA_VISIBLE_DEVICES");
  }
  if (count == 0) return no_device("the driver sees none. Look at nvidia-smi and CUDA_VISIBLE_DEVICES");
  return Status();
}

}  // namespace

Result<CudaDriver> load_cuda_driver() {
  set_driver_variables();
  const DynamicLibrary library("libcuda.so.1");
  if (!library.loaded()) {
    return no_device("the NVIDIA driver cannot be loaded (" + library.error() + "). Install it");
  }
  LOCKSTEP_RETURN_IF_ERROR(check_devices());
  CudaDriver driver{};
  Functions functions;
  functions.get(driver.get_error_string, "cuGetErrorString");
  functions.get(driver.device_uuid, "cuDeviceGetUuid");
  functions.get(driver.device_attribute, "cuDeviceGetAttribute");
  functions.get(driver.retain_context, "cuDevicePrimaryCtxRetain");
  functions.get(driver.context_state, "cuDevicePrimaryCtxGetState");
  functions.get(driver.current_context, "cuCtxGetCurrent");
  functions.get(driver.set_context, "cuCtxSetCurrent");
  functions.get(driver.exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  functions.get(driver.loading_mode, "cuModuleGetLoadingMode");
  functions.get(driver.pointer_attributes, "cuPointerGetAttributes");
  functions.get(driver.pointer_attribute, "cuPointerGetAttribute");
  functions.get(driver.address_range, "cuMemGetAddressRange");
  functions.get(driver.stream_batch, "cuStreamBatchMemOp");
  functions.get(driver.stream_id, "cuStreamGetId");
  functions.get(driver.granularity, "cuMemGetAllocationGranularity");
  functions.get(driver.create, "cuMemCreate");
  functions.get(driver.release, "cuMemRelease");
  functions.get(driver.reserve, "cuMemAddressReserve");
  functions.get(driver.unreserve, "cuMemAddressFree");
  functions.get(driver.map, "cuMemMap");
  functions.get(driver.unmap, "cuMemUnmap");
  functions.get(driver.set_access, "cuMemSetAccess");
  functions.get(driver.retain, "cuMemRetainAllocationHandle");
  functions.get(driver.export_handle, "cuMemExportToShareableHandle");
  functions.get(driver.import_handle, "cuMemImportFromShareableHandle");
  if (functions.missing() != nullptr) {
    return no_device(std::string("the driver has no ") + functions.missing() + ". Install a newer one");
  }
  return driver;
}

Status driver_status(const CudaDriver& driver, CUresult result, const std::string& what) {
  if (result == CUDA_SUCCESS) return Status();
  const char* text = nullptr;
  if (driver.get_error_string(result, &text) != CUDA_SUCCESS || text == nullptr) text = "unknown error";
  const ErrorCode code = result == CUDA_ERROR_OUT_OF_MEMORY   ? ErrorCode::out_of_memory
                         : result == CUDA_ERROR_NOT_SUPPORTED ? ErrorCode::not_supported
                                                              : ErrorCode::device_failed;
  return Status(code, what + ": " + text);
}

}  // namespace lockstep::internal
