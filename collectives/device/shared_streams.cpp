#include "collectives/device/shared_streams.hpp"

#include <algorithm>

namespace lockstep::internal {
namespace {

/// Streams come and go; a rank that uses more by turns is refused no call of the oldest.
constexpr std::size_t kMostStreams = 64;

}  // namespace

SharedStreams& SharedStreams::instance() {
  static auto& all = *new SharedStreams;
  return all;
}

int SharedStreams::enter(const Rank& rank, const Stream& stream, std::uint64_t call) {
  const std::lock_guard lock(mutex_);
  for (auto other = last_calls_.lower_bound({rank.group, 0});
       other != last_calls_.end() && other->first.group == rank.group; ++other) {
    if (other->first.rank == rank.rank) continue;
    const auto there = other->second.find(stream);
    if (there != other->second.end() && there->second >= call) return other->first.rank;
  }
  std::map<Stream, std::uint64_t>& own = last_calls_[rank];
  own[stream] = call;
  if (own.size() > kMostStreams) {
    own.erase(std::min_element(own.begin(), own.end(),
                               [](const auto& a, const auto& b) { return a.second < b.second; }));
  }
  return -1;
}

void SharedStreams::forget(const Rank& rank) {
  const std::lock_guard lock(mutex_);
  last_calls_.erase(rank);
}

}  // namespace lockstep::internal
