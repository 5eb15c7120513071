#include "collectives/programs/domain/domain.hpp"

#include <algorithm>

namespace lockstep::internal {

Blocks aligned_parts(std::uint64_t count, int parts) {
  const auto ranks = static_cast<std::uint64_t>(parts);
  if (count < ranks * kAlignment) return Blocks::parts(count, parts);
  const Blocks lines = Blocks::parts((count + kAlignment - 1) / kAlignment, parts);
  std::vector<std::uint64_t> counts;
  for (int i = 0; i < parts; ++i) {
    const std::uint64_t begin = lines[i].begin * kAlignment;
    counts.push_back(std::min(count, begin + lines[i].count * kAlignment) - begin);
  }
  return Blocks(counts);
}

std::uint64_t aligned_stride(std::uint64_t room, std::uint64_t parts) {
  const std::uint64_t stride = room / parts;
  return stride >= kAlignment ? stride - stride % kAlignment : stride;
}

std::uint64_t part_stride(const Shape& shape, int slots) {
  return aligned_stride(shape.staging, static_cast<std::uint64_t>(slots * shape.world));
}

}  // namespace lockstep::internal
