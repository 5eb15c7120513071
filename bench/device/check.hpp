// Data of calls, made and checked where they lie: kernels repeat a table over the input and compare the
// output with one. What crosses between host and device are tables of one period, and a number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/data.hpp"
#include "bench/device/memory.hpp"
#include "lib/device/backend.hpp"

namespace lockstep::bench {

class DeviceCheck {
 public:
  /// Of the selected device. Its functions wait for `stream`, which outlives it.
  explicit DeviceCheck(Stream stream);

  /// Every element of this rank's input, in device memory.
  void fill(const Data& data, const Call& call, std::uint64_t round, void* input);
  /// Elements of `output` that differ from what they must be.
  std::uint64_t count_wrong(const Data& data, const Call& call, std::uint64_t round, const void* output);

 private:
  void launch(void* buffer, std::uint64_t elements, DataType type, const std::vector<std::byte>& period,
              std::uint64_t* wrong);

  internal::Backend& backend_;
  const Stream stream_;
  DeviceBuffer table_, wrong_;
};

}  // namespace lockstep::bench
