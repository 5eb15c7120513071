// The shapes that programs are tried on.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "collectives/programs/blocks.hpp"
#include "collectives/programs/program.hpp"

namespace lockstep::internal {

inline bool is_rooted(Collective collective) {
  switch (collective) {
    case Collective::reduce:
    case Collective::broadcast:
    case Collective::scatter:
    case Collective::gather:
    case Collective::scatter_v:
    case Collective::gather_v:
      return true;
    default:
      return false;
  }
}

/// "all_reduce_ring_links", as a test name.
inline std::string name_of_row(const Algorithm& row) {
  constexpr const char* kNames[] = {"links", "staged", "registered", "pulled"};
  return std::string(name_of(row.collective)) + "_" + std::string(row.name) + "_" +
         kNames[static_cast<std::size_t>(row.medium)];
}
inline std::string name_of_case(const Shape& shape) {
  return "world " + std::to_string(shape.world) + " root " + std::to_string(shape.root) + " count " +
         std::to_string(shape.count) + " segment " + std::to_string(shape.segment) + " staging " +
         std::to_string(shape.staging);
}

/// Ranks dealt to hosts of these sizes, again and again.
inline std::vector<int> hosts_of(int world, const std::vector<int>& sizes) {
  std::vector<int> hosts;
  for (int host = 0; static_cast<int>(hosts.size()) < world; ++host) {
    const int size = sizes[static_cast<std::size_t>(host) % sizes.size()];
    for (int i = 0; i < size && static_cast<int>(hosts.size()) < world; ++i) hosts.push_back(host);
  }
  return hosts;
}
/// Four elements, or four for each of four ranks, who are on these hosts.
inline Shape shape_on_hosts(const Algorithm& row, const std::vector<int>& hosts) {
  Shape shape;
  shape.collective = row.collective;
  shape.world = 4;
  shape.count = 4;
  if (has_counts(row.collective)) shape.counts = shape.recv_counts = {4, 4, 4, 4};
  shape.hosts = hosts;
  return shape;
}
/// Those for ranks that share hosts alone.
inline bool needs_hosts(const Algorithm& row) {
  return row.medium == Medium::links && !row.supports(shape_on_hosts(row, {}));
}
/// Those that do without, and send in another order where ranks share hosts, as rings do.
inline bool follows_hosts(const Algorithm& row) {
  if (row.medium != Medium::links || needs_hosts(row)) return false;
  Shape together = shape_on_hosts(row, {}), dealt = shape_on_hosts(row, {0, 1, 0, 1});
  for (int rank = 0; rank < together.world; ++rank) {
    together.rank = dealt.rank = rank;
    if (to_string(row.build(together)) != to_string(row.build(dealt))) return true;
  }
  return false;
}

/// A shape of `count` elements. `pieces`: into how many segments a message, and blocks a staged buffer, is
/// cut (1: not cut). v-counts are uneven, and some are 0.
inline Shape shape_of(const Algorithm& row, int world, int root, std::uint64_t count, std::uint64_t pieces,
                      bool none_empty = false) {
  Shape shape;
  shape.collective = row.collective;
  shape.world = world;
  shape.root = root;
  shape.count = count;
  const auto ranks = static_cast<std::uint64_t>(world);
  std::uint64_t longest = has_counts(row.collective) ? 0 : count;
  for (std::uint64_t rank = 0; rank < ranks && has_counts(row.collective); ++rank) {
    shape.counts.push_back(none_empty ? count * (rank % 4 + 2) / 4
                                      : count * (rank % 4) / 2 + (rank == 2 ? 1 : 0));
    longest = std::max(longest, shape.counts.back());
  }
  const bool whole_buffer = row.collective == Collective::all_reduce || row.collective == Collective::reduce;
  const bool ring = row.name == "ring";
  if (needs_hosts(row)) shape.hosts = hosts_of(world, {2, 1, 3});
  if (pieces > 1) shape.segment = longest / (pieces * (whole_buffer && ring ? ranks : 1)) + 1;
  if (row.medium == Medium::domain_staged) {
    // Three slots; room for one piece of a block from every rank. one_shot does not cut.
    const std::uint64_t slot =
        whole_buffer ? (longest / pieces / ranks + 1) * ranks : (longest / pieces + 1) * ranks;
    shape.staging = row.name == "one_shot" ? std::max<std::uint64_t>(1, count) : 3 * slot;
    shape.segment = 0;
  }
  return shape;
}

/// Every row of the table, and its name, for parameterised tests.
inline std::vector<const Algorithm*> every_row() {
  std::vector<const Algorithm*> rows;
  for (const Algorithm& row : algorithms()) rows.push_back(&row);
  return rows;
}
/// Those that are not composed of others.
inline std::vector<const Algorithm*> rows_of_one_part() {
  std::vector<const Algorithm*> rows = every_row();
  std::erase_if(rows, [](const Algorithm* row) { return needs_hosts(*row); });
  return rows;
}
inline std::string row_test_name(const testing::TestParamInfo<const Algorithm*>& test) {
  return name_of_row(*test.param);
}

struct Size {
  std::uint64_t count;
  std::uint64_t pieces;
};
constexpr std::uint64_t kLargeOddCount = 1'000'003;

/// Counts around the world size, and a large odd one, whole and in pieces.
inline std::vector<Size> sizes_for(int world) {
  const auto ranks = static_cast<std::uint64_t>(world);
  return {
      {0, 1}, {1, 1}, {ranks - 1, 1}, {ranks, 1}, {ranks + 1, 2}, {kLargeOddCount, 1}, {kLargeOddCount, 5}};
}

}  // namespace lockstep::internal
