#include "collectives/device/shared_streams.hpp"

#include <algorithm>
#include <utility>

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

/// All at once: two threads never wait for one another.
SharedStreams::Turn::Turn(std::vector<Stream> streams) : streams_(std::move(streams)) {
  if (streams_.empty()) return;
  SharedStreams& all = instance();
  std::unique_lock lock(all.mutex_);
  all.turn_ended_.wait(lock, [&] {
    return std::none_of(streams_.begin(), streams_.end(),
                        [&](const Stream& stream) { return all.in_turn_.count(stream) != 0; });
  });
  all.in_turn_.insert(streams_.begin(), streams_.end());
}

SharedStreams::Turn::~Turn() {
  if (streams_.empty()) return;
  SharedStreams& all = instance();
  const std::lock_guard lock(all.mutex_);
  for (const Stream& stream : streams_) all.in_turn_.erase(stream);
  all.turn_ended_.notify_all();
}

}  // namespace lockstep::internal
