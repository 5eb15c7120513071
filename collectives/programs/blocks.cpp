#include "collectives/programs/blocks.hpp"

#include <algorithm>
#include <numeric>

namespace lockstep::internal {

Blocks Blocks::parts(std::uint64_t count, int parts) {
  Blocks blocks;
  blocks.begins_.reserve(static_cast<std::size_t>(parts) + 1);
  for (int i = 0; i < parts; ++i) {
    blocks.begins_.push_back(
        part_of(count, static_cast<std::uint64_t>(parts), static_cast<std::uint64_t>(i)).begin);
  }
  blocks.begins_.push_back(count);
  return blocks;
}

Blocks::Blocks(std::span<const std::uint64_t> counts) : begins_(counts.size() + 1) {
  std::partial_sum(counts.begin(), counts.end(), begins_.begin() + 1);
}

Blocks Blocks::of(const Shape& shape) {
  if (has_counts(shape.collective)) return Blocks(shape.counts);
  return parts(shape.count * static_cast<std::uint64_t>(shape.world), shape.world);
}

Blocks Blocks::in_order(std::vector<int> order) const {
  Blocks blocks = *this;
  blocks.order_ = std::move(order);
  return blocks;
}

Range Blocks::operator[](int index) const {
  auto at = static_cast<std::size_t>(wrap(index, size()));
  if (!order_.empty()) at = static_cast<std::size_t>(order_[at]);
  return {begins_[at], begins_[at + 1] - begins_[at]};
}

Range Blocks::joined(int first, int blocks) const {
  const auto from = static_cast<std::size_t>(first), to = static_cast<std::size_t>(first + blocks);
  return {begins_[from], begins_[to] - begins_[from]};
}

std::uint64_t Blocks::longest() const {
  std::uint64_t longest = 0;
  for (int i = 0; i < size(); ++i) longest = std::max(longest, (*this)[i].count);
  return longest;
}

bool has_counts(Collective collective) {
  switch (collective) {
    case Collective::scatter_v:
    case Collective::gather_v:
    case Collective::all_gather_v:
    case Collective::reduce_scatter_v:
    case Collective::all_to_all_v:
      return true;
    default:
      return false;
  }
}

namespace {

std::uint64_t sum(const std::vector<std::uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::uint64_t{0});
}
std::uint64_t own(const Shape& shape) { return shape.counts[static_cast<std::size_t>(shape.rank)]; }

}  // namespace

std::uint64_t input_elements(const Shape& shape) {
  const bool at_root = shape.rank == shape.root;
  const std::uint64_t all_blocks = shape.count * static_cast<std::uint64_t>(shape.world);
  switch (shape.collective) {
    case Collective::all_reduce:
    case Collective::reduce:
    case Collective::gather:
    case Collective::all_gather:
      return shape.count;
    case Collective::broadcast:
      return at_root ? shape.count : 0;
    case Collective::scatter:
      return at_root ? all_blocks : 0;
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return all_blocks;
    case Collective::scatter_v:
      return at_root ? sum(shape.counts) : 0;
    case Collective::gather_v:
    case Collective::all_gather_v:
      return own(shape);
    case Collective::reduce_scatter_v:
    case Collective::all_to_all_v:
      return sum(shape.counts);
    case Collective::barrier:
      return 0;
  }
  return 0;
}

std::uint64_t output_elements(const Shape& shape) {
  const bool at_root = shape.rank == shape.root;
  const std::uint64_t all_blocks = shape.count * static_cast<std::uint64_t>(shape.world);
  switch (shape.collective) {
    case Collective::all_reduce:
    case Collective::scatter:
    case Collective::reduce_scatter:
      return shape.count;
    case Collective::reduce:
      return at_root ? shape.count : 0;
    case Collective::broadcast:
      return at_root ? 0 : shape.count;
    case Collective::gather:
      return at_root ? all_blocks : 0;
    case Collective::all_gather:
    case Collective::all_to_all:
      return all_blocks;
    case Collective::scatter_v:
    case Collective::reduce_scatter_v:
      return own(shape);
    case Collective::gather_v:
      return at_root ? sum(shape.counts) : 0;
    case Collective::all_gather_v:
      return sum(shape.counts);
    case Collective::all_to_all_v:
      return sum(shape.recv_counts);
    case Collective::barrier:
      return 0;
  }
  return 0;
}

Shape seldom_cut(Shape shape) {
  constexpr std::uint64_t kSegments = 64, kAbsurd = std::uint64_t{1} << 50;
  shape.segment = std::min(shape.segment, kAbsurd) * kSegments;
  return shape;
}

int segment_count(std::uint64_t count, std::uint64_t segment) {
  if (count == 0) return 0;
  return segment == 0 ? 1 : static_cast<int>(count / segment + (count % segment != 0 ? 1 : 0));
}

Range segment_of(Range whole, std::uint64_t segment, int index) {
  const auto segments = static_cast<std::uint64_t>(segment_count(whole.count, segment));
  const Range part = part_of(whole.count, segments, static_cast<std::uint64_t>(index));
  return {whole.begin + part.begin, part.count};
}

Range segment_if_any(Range whole, std::uint64_t segment, int index) {
  if (index >= segment_count(whole.count, segment)) return {whole.begin, 0};
  return segment_of(whole, segment, index);
}

int floor_power_of_two(int value) {
  int power = 1;
  while (power <= value / 2) power *= 2;
  return power;
}

}  // namespace lockstep::internal
