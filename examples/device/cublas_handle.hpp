// cuBLAS on a stream, and the errors of CUDA and cuBLAS as exceptions.
#pragma once

#include <cublas_v2.h>

#include <stdexcept>
#include <string>

namespace examples {

inline void check(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error(std::string("cuBLAS: ") + cublasGetStatusString(status));
}

/// Of the kernel that was launched last.
inline void check_launch() {
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}

/// Enqueues products on a stream. cuBLAS is column-major, in which a row-major matrix is its transpose: for
/// out = a b ask for out' = b' a'.
class CublasHandle {
 public:
  explicit CublasHandle(cudaStream_t stream) {
    check(cublasCreate(&handle_));
    check(cublasSetStream(handle_, stream));
  }
  ~CublasHandle() { static_cast<void>(cublasDestroy(handle_)); }
  CublasHandle(const CublasHandle&) = delete;
  CublasHandle& operator=(const CublasHandle&) = delete;
  cublasHandle_t get() const { return handle_; }

 private:
  cublasHandle_t handle_ = nullptr;
};

}  // namespace examples
