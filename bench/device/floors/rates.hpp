// What one process gets out of a device at best: the rates of copies and of reductions, and the shortest
// kernel that has to do with a flag.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>

#include "lib/device/backend.hpp"

namespace lockstep::bench {

/// Of the first row; the next have four times as many each.
inline constexpr std::size_t kLeastBytes = 1 << 20;

/// {"copy": [{bytes, gbs}], "reduce_f32_sum": [{bytes, sources, gbs, of_copy}], "flag_kernel_us"}:
/// bytes read and written together, 10^9 a second.
nlohmann::ordered_json measure_rates(internal::Backend& backend, std::size_t most_bytes);

}  // namespace lockstep::bench
