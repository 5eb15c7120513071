// What ranks tell one another while they set up: one fixed-size record of each.
#pragma once

#include <cstring>
#include <type_traits>
#include <vector>

#include "collectives/call_builder.hpp"
#include "collectives/communicator_core.hpp"

namespace lockstep::internal {

/// Collective over `group`: every rank's record, by rank.
template <typename Record>
Result<std::vector<Record>> exchange_records(CommunicatorCore& group, const Record& own) {
  static_assert(std::is_trivially_copyable_v<Record>);
  std::vector<Record> all(static_cast<std::size_t>(group.size()));
  CallBuilder gather(Collective::all_gather, group.engine(), {});
  gather.elements(DataType::u8, sizeof(Record)).buffers(&own, all.data());
  LOCKSTEP_RETURN_IF_ERROR(group.engine().run(gather.build()));
  return all;
}

/// Collective: ok where every rank's own status is; else the first rank's error, on all ranks.
inline Status agree(CommunicatorCore& group, const Status& own) {
  struct Outcome {
    std::int64_t code = 0;
    char text[504] = {};
  };
  Outcome outcome;
  outcome.code = static_cast<std::int64_t>(own.code());
  std::strncpy(outcome.text, own.message().c_str(), sizeof outcome.text - 1);
  auto all = exchange_records(group, outcome);
  if (!all.ok()) return all.status();
  for (std::size_t rank = 0; rank < all->size(); ++rank) {
    const Outcome& one = (*all)[rank];
    if (one.code == 0) continue;
    return Status(static_cast<ErrorCode>(one.code), "rank " + std::to_string(rank) + ": " + one.text,
                  static_cast<int>(rank));
  }
  return {};
}

}  // namespace lockstep::internal
