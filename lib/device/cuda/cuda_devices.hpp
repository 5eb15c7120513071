// What the CUDA backend learns once of each device.
#pragma once

#include <cuda.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>

#include "lib/device/backend.hpp"
#include "lib/device/cuda/cuda_driver.hpp"
#include "lib/reduce/cuda/kernels.hpp"

namespace lockstep::internal {

/// Thread-safe.
class CudaDevices {
 public:
  CudaDevices(const CudaDriver& driver, int count);

  int count() const noexcept { return count_; }
  /// Asked of the driver once: that is slow, and every mapping wants to know.
  Result<DeviceIdentity> identify(int device);
  /// The context that the runtime uses; kept until the process ends.
  Result<CUcontext> context(int device);
  /// Of a device that this process uses already; null: it uses none.
  CUcontext any_context();
  struct Ready {
    int multiprocessors;
    const cuda::Residency* residency;
  };
  /// The selected device, whose number is `device`: the first call loads its kernels.
  Result<Ready> make_ready(int device);
  /// Of the selected device, too: the driver has kernels of its own for copies and fills, and loads them with
  /// the first ones.
  Status load_copies(int device);

 private:
  struct Facts {
    std::atomic<int> multiprocessors{0};
    cuda::Residency residency;  ///< From when the number above is known.
    bool copies_are_loaded = false;
    std::optional<DeviceIdentity> identity;
    std::atomic<CUcontext> context{nullptr};
  };
  Result<Facts*> facts_of(int device) const;
  Result<DeviceIdentity> ask_identity(int device) const;
  bool has(int device, CUdevice_attribute attribute) const;

  const CudaDriver& driver_;
  const int count_;
  const std::unique_ptr<Facts[]> facts_;
  std::mutex learning_;
};

/// For what is of no device, or not known of which, but needs a context: while this lives the calling thread
/// has one. The runtime would make that of device 0.
class AnyContext {
 public:
  AnyContext(const CudaDriver& driver, CudaDevices& devices);
  ~AnyContext();
  AnyContext(const AnyContext&) = delete;
  AnyContext& operator=(const AnyContext&) = delete;
  /// False: this process uses no device, and has no memory of one.
  bool exists() const { return exists_; }

 private:
  const CudaDriver& driver_;
  bool exists_ = true, lent_ = false;
};

}  // namespace lockstep::internal
