// VerbsMeeting: brings the ranks of one communicator together, pair by pair, over connections that the
// switchboard makes when one of the two first wants the other.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transports/tcp/switchboard_bell.hpp"

namespace lockstep::internal {

/// Used under the engine's lock, as the fabric that it belongs to.
class VerbsMeeting {
 public:
  struct Met {
    int peer;
    Result<Fd> socket;  ///< An error: they will not meet.
  };

  /// `group`, `rank` and `world_ranks` as for make_verbs_transport. The switchboard must be there until
  /// close().
  static Result<std::unique_ptr<VerbsMeeting>> make(std::uint64_t group, int rank,
                                                    std::span<const int> world_ranks,
                                                    Switchboard& switchboard);
  ~VerbsMeeting() { close(); }
  VerbsMeeting(const VerbsMeeting&) = delete;
  VerbsMeeting& operator=(const VerbsMeeting&) = delete;

  /// Repeated calls do nothing more.
  void want(int peer);
  /// Whom this rank met since the last call, wanted here or there. Cheap when that is nobody.
  std::vector<Met> met();
  /// Nobody is met any more, and the switchboard may go.
  void close();
  /// Becomes readable when met() may give something, and when one of the watched sockets is. The reactor then
  /// also looks after engines for which nobody waits: a peer may want a rank that is busy elsewhere.
  int descriptor() const { return events_.get(); }
  void watch(int socket);

 private:
  VerbsMeeting(std::uint64_t channel, int rank, std::span<const int> world_ranks, Switchboard& switchboard)
      : channel_(channel),
        rank_(rank),
        world_ranks_(world_ranks.begin(), world_ranks.end()),
        switchboard_(switchboard),
        met_(world_ranks.size()) {}
  Status open();

  const std::uint64_t channel_;
  const int rank_;
  const std::vector<int> world_ranks_;
  Switchboard& switchboard_;
  std::unique_ptr<SwitchboardBell> bell_;
  Fd events_;  // epoll: the bell and the watched sockets.
  Reactor::Handle watch_ = 0;
  std::vector<bool> met_;  // Index = rank.
  bool closed_ = false;
};

}  // namespace lockstep::internal
