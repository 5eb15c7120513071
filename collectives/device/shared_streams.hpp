// SharedStreams: ranks of one process that put calls in the same stream.
//
// A stream runs one call after the other. Where a rank's call waits for all ranks, and another rank's part of
// it stands behind it in the same stream, nothing ends it but the deadline: so the second is refused. And the
// parts of a call stay together: once the first ones let a peer go on, its next call could come between them
// and wait for a rank that waits for the rest.
#pragma once

#include <compare>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

namespace lockstep::internal {

/// Thread-safe.
class SharedStreams {
 public:
  struct Rank {
    std::uint64_t group;
    int rank;
    auto operator<=>(const Rank&) const = default;
  };
  /// By device and Backend::stream_number().
  using Stream = std::pair<int, std::uint64_t>;

  /// Of this process; never destroyed.
  static SharedStreams& instance();

  /// `rank` puts its call number `call`, which waits for all ranks of the group, in `stream`. Gives the rank
  /// of this process whose call of that number, or a later one, is there already; -1: none.
  int enter(const Rank& rank, const Stream& stream, std::uint64_t call);
  void forget(const Rank& rank);

  /// A thread's, to put all of a call in its streams. Blocks while another has its turn in one of them.
  class Turn {
   public:
    explicit Turn(std::vector<Stream> streams);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    const std::vector<Stream> streams_;
  };

 private:
  std::mutex mutex_;
  std::condition_variable turn_ended_;
  std::set<Stream> in_turn_;
  std::map<Rank, std::map<Stream, std::uint64_t>> last_calls_;
};

}  // namespace lockstep::internal
