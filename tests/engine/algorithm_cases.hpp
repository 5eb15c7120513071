// Rows of the algorithm table as test parameters.
#pragma once

#include <string>

#include "collectives/programs/domain/staging_window.hpp"
#include "collectives/programs/program.hpp"
#include "tests/engine/reference.hpp"
#include "transports/domain.hpp"

namespace lockstep::internal {

/// The shape of a case at `rank`, to ask a row whether it supports it.
inline Shape shape_of(const CollectiveCase& c, int rank) {
  Shape shape;
  shape.collective = c.collective;
  shape.rank = rank;
  shape.world = c.world;
  shape.root = c.root;
  shape.count = c.irregular() ? 0 : c.count;
  shape.staging = staging_window(shape, size_of(c.type), kStagingBytes);
  if (c.irregular()) {
    for (const std::size_t count : c.counts(rank)) shape.counts.push_back(count);
    for (const std::size_t count : c.receive_counts(rank)) shape.recv_counts.push_back(count);
  }
  return shape;
}

inline std::string text_of(Medium medium) {
  switch (medium) {
    case Medium::links:
      return "links";
    case Medium::domain_staged:
      return "staged";
    case Medium::domain_registered:
      return "registered";
    case Medium::domain_pulled:
      return "pulled";
  }
  return "unknown";
}

/// "all_reduce_ring_links".
inline std::string text_of(const Algorithm& row) {
  return std::string(name_of(row.collective)) + "_" + std::string(row.name) + "_" + text_of(row.medium);
}

/// CallFacts::algorithm of a row.
inline int number_of(const Algorithm& row) { return static_cast<int>(&row - algorithms().data()) + 1; }

}  // namespace lockstep::internal
