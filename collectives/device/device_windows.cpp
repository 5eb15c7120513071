#include "collectives/device/device_windows.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "collectives/programs/blocks.hpp"
#include "lib/base/hash.hpp"

namespace lockstep::internal {
namespace {

/// Which buffers the programs of registered memory touch on other ranks (collectives/programs/domain), where
/// every rank has such a buffer and so knows its place on all.
struct Touched {
  bool input = false, output = false;
};
Touched touched_by(Collective collective) {
  switch (collective) {
    case Collective::all_reduce:
      return {.input = true, .output = true};
    case Collective::all_gather:
    case Collective::all_gather_v:
      return {.output = true};
    case Collective::broadcast:
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
    case Collective::all_to_all:
      return {.input = true};
    default:  // Only the root has the buffer that the others touch.
      return {};
  }
}

}  // namespace

void DeviceWindows::add(std::byte* base, std::size_t bytes, std::vector<std::byte*> members,
                        std::vector<DeviceLease> leases) {
  const std::lock_guard lock(mutex_);
  windows_.emplace(base, Window{++added_, bytes, std::move(members), std::move(leases)});
}

std::vector<DeviceLease> DeviceWindows::remove(const void* base) {
  const std::lock_guard lock(mutex_);
  const auto [from, to] = windows_.equal_range(static_cast<const std::byte*>(base));
  return remove(from, to);
}

std::vector<DeviceLease> DeviceWindows::remove_all() {
  const std::lock_guard lock(mutex_);
  return remove(windows_.begin(), windows_.end());
}

std::vector<DeviceLease> DeviceWindows::remove(Windows::iterator from, Windows::iterator to) {
  std::vector<DeviceLease> leases;
  for (auto one = from; one != to; ++one)
    std::move(one->second.leases.begin(), one->second.leases.end(), std::back_inserter(leases));
  windows_.erase(from, to);
  return leases;
}

std::optional<WindowUse> DeviceWindows::find(const Call& call) const {
  // A factor is known to its own rank alone: peers would read the input unscaled.
  if (call.facts.op == ReduceOp::premul_sum && is_reduction(call.facts.collective)) return std::nullopt;
  const Touched touched = touched_by(call.facts.collective);
  const std::lock_guard lock(mutex_);
  if (windows_.empty() || (!touched.input && !touched.output)) return std::nullopt;
  const std::size_t element = size_of(call.facts.type);
  // The one buffer of a broadcast is the input of its root, and the output elsewhere.
  const bool one_buffer = call.facts.collective == Collective::broadcast;
  const std::uint64_t inputs =
      one_buffer ? std::max(call.input_elements, call.output_elements) : call.input_elements;
  WindowUse use;
  if (touched.input && !locate(call.input, inputs * element, use.input, use.places)) return std::nullopt;
  if (touched.output && !locate(call.output, call.output_elements * element, use.output, use.places))
    return std::nullopt;
  return use;
}

bool DeviceWindows::locate(const void* pointer, std::size_t bytes, std::vector<std::byte*>& members,
                           std::uint64_t& places) const {
  const auto* const begin = static_cast<const std::byte*>(pointer);
  const Window* last = nullptr;
  std::size_t offset = 0;
  for (auto one = windows_.begin(); bytes != 0 && one != windows_.upper_bound(begin); ++one) {
    const auto distance = static_cast<std::size_t>(begin - one->first);
    const Window& window = one->second;
    if (distance + bytes > window.bytes || (last != nullptr && last->number > window.number)) continue;
    last = &window;
    offset = distance;
  }
  if (last == nullptr) return false;
  members = last->members;
  for (std::byte*& member : members) member += offset;
  places = hash_combine(hash_combine(places, last->number), offset);
  return true;
}

}  // namespace lockstep::internal
