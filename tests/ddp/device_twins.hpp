// A DeviceReducer and a Reducer that are given the same: what one does the other must do, bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ddp/device/host_options.hpp"
#include "lockstep/ddp.hpp"
#include "lockstep/ddp/device_reducer.hpp"
#include "tests/support/device_backend.hpp"
#include "tests/support/must.hpp"

namespace lockstep::testing {

using internal::testing::must;

/// Equal numbers in pinned memory: enqueuing a copy of them returns at once.
class PinnedFloats {
 public:
  PinnedFloats(std::size_t count, float value)
      : data_(static_cast<float*>(must(backend().allocate_pinned(count * sizeof(float))))) {
    std::fill_n(data_, count, value);
  }
  ~PinnedFloats() { static_cast<void>(backend().free_pinned(data_)); }
  PinnedFloats(const PinnedFloats&) = delete;
  PinnedFloats& operator=(const PinnedFloats&) = delete;
  const float* data() const { return data_; }

 private:
  float* const data_;
};

/// A stream that comes to what it was given once open() is called.
class GatedStream {
 public:
  ~GatedStream() {
    open();
    must(backend().destroy_stream(stream_));
    must(backend().free_pinned(gate_));
  }
  Stream get() const { return stream_; }
  void close() { must(backend().wait_value(gate_, ++closed_, stream_)); }
  void open() { std::atomic_ref(*gate_).store(closed_); }

 private:
  Stream stream_ = must(backend().create_stream());
  std::uint32_t* gate_ = static_cast<std::uint32_t*>(must(backend().allocate_pinned(sizeof(std::uint32_t))));
  std::uint32_t closed_ = 0;
};

inline constexpr std::size_t kParameters = 5;
inline constexpr std::size_t count_of(std::size_t i) { return 300 + 700 * i; }

/// Said again, not taken from host_options(): by what that forgets, both would be wrong alike.
inline ReducerOptions same_options(const DeviceReducerOptions& options) {
  ReducerOptions same;
  same.bucket_bytes = options.bucket_bytes;
  same.first_bucket_bytes = options.first_bucket_bytes;
  same.average = options.average;
  same.weighted = options.weighted;
  same.find_unused = options.find_unused;
  same.uneven = options.uneven;
  same.static_graph = options.static_graph;
  same.check_first = options.check_first;
  same.check_finite = options.check_finite;
  same.check_replicas_every = options.check_replicas_every;
  same.rebuild = options.gradients_moved != nullptr;
  same.gradients_moved = options.gradients_moved;
  same.hook = internal::host_hook(options.compression, options.block);
  return same;
}

/// A reducer on a device and one on the host, of the same parameters and options.
struct Twins {
  /// Of the first `parameters` only.
  Twins(Communicator& h, DeviceReducerOptions options, std::size_t parameters = kParameters)
      : host(h), device(h, 0), memory(kParameters), values(kParameters) {
    options.bucket_bytes = 8 << 10;
    options.first_bucket_bytes = 1 << 10;
    const ReducerOptions same = same_options(options);
    for (std::size_t i = 0; i < kParameters; ++i) {
      memory[i] = static_cast<float*>(allocate_device(count_of(i) * sizeof(float), 0));
      values[i].assign(count_of(i), 1.0f);
      std::copy(values[i].begin(), values[i].end(), memory[i]);
      const std::string name = "p" + std::to_string(i);
      there.push_back({name, DataType::f32, {count_of(i)}, memory[i], nullptr});
      here.push_back({name, DataType::f32, {count_of(i)}, values[i].data(), nullptr});
    }
    on_device = std::make_unique<DeviceReducer>(host, device, std::span(there).first(parameters), options);
    on_host = std::make_unique<Reducer>(host, std::span(here).first(parameters), same);
    stream = must(backend().create_stream());
  }
  ~Twins() {
    on_device.reset();
    must(backend().destroy_stream(stream));
    for (float* const block : memory) free_device(block);
    device.finalize();
  }

  /// Both get the same gradient for parameter i, added to what is there if `adds`.
  void compute(std::size_t i, unsigned seed, bool adds = false) {
    auto* const gradient = static_cast<float*>(on_host->gradient(i));
    for (std::size_t k = 0; k < count_of(i); ++k) {
      const float value =
          std::sin(static_cast<float>(seed * 31 + i * 7 + k) * 0.37f) * static_cast<float>(host.rank() + 1);
      gradient[k] = adds ? gradient[k] + value : value;
    }
    put(i);
  }
  void put(std::size_t i) {
    must(backend().copy(on_device->gradient(i), on_host->gradient(i), count_of(i) * sizeof(float), stream));
    must(backend().synchronize(stream));
  }
  void mark(std::size_t i) {
    on_device->mark_ready(i, stream);
    on_host->mark_ready(i);
  }
  void wait() {
    on_device->wait(stream);
    on_host->wait();
  }
  void expect_equal(const char* when, std::size_t parameters = kParameters) {
    must(backend().synchronize(stream));
    for (std::size_t i = 0; i < parameters; ++i) {
      ASSERT_EQ(std::memcmp(on_device->gradient(i), on_host->gradient(i), count_of(i) * sizeof(float)), 0)
          << when << ", parameter " << i << ", rank " << host.rank();
    }
  }

  Communicator& host;
  DeviceCommunicator device;
  std::vector<float*> memory;
  std::vector<std::vector<float>> values;
  std::vector<Parameter> there, here;  ///< On the device, on the host.
  std::unique_ptr<DeviceReducer> on_device;
  std::unique_ptr<Reducer> on_host;
  Stream stream = nullptr;
};

}  // namespace lockstep::testing
