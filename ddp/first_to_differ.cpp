#include "ddp/first_to_differ.hpp"

#include <algorithm>
#include <vector>

namespace lockstep::internal {

int first_to_differ(std::span<const std::uint64_t> values) {
  const auto odd =
      std::find_if(values.begin(), values.end(), [&](std::uint64_t v) { return v != values.front(); });
  return odd == values.end() ? -1 : static_cast<int>(odd - values.begin());
}

int first_to_differ(Communicator& communicator, std::uint64_t value) {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(&value, all.data(), 1, DataType::u64);
  return first_to_differ(all);
}

}  // namespace lockstep::internal
