// SimNetwork: the links and the domain of one simulated communicator. Several networks (a communicator and
// its splits) may share one schedule. Crashes of the schedule's ranks end their connections here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "transports/sim/sim_domain.hpp"
#include "transports/sim/sim_env.hpp"
#include "transports/sim/sim_link.hpp"

namespace lockstep::internal {

struct SimNetworkOptions {
  SimLinkOptions links;
  bool domain = false;  ///< Whether the members share memory as well.
};

/// Two links of one pair and channel, and the pipes between them. Side 0 is the lower rank.
struct SimConnection {
  SimConnection(SimSchedule& schedule, const SimLinkOptions& options, std::pair<int, int> both,
                std::pair<int, int> ranks);
  SimPipe pipes[2];                   ///< pipes[s]: from side s.
  SimLink links[2];                   ///< links[s]: of side s.
  const std::pair<int, int> members;  ///< members.first is side 0.
  Nanos ready_at[2] = {0, 0};
  bool accepted[2] = {false, false};  ///< Side s knows of the connection.
};

class SimNetwork {
 public:
  /// `members[m]` is the schedule's rank of member m. The schedule outlives the network, the network its
  /// transports; it is not destroyed before the schedule's last crash.
  SimNetwork(SimSchedule& schedule, std::vector<int> members, const SimNetworkOptions& options);
  /// All ranks of the schedule.
  SimNetwork(SimSchedule& schedule, const SimNetworkOptions& options);
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  /// The transport of `member`.
  std::unique_ptr<Transport> attach(int member);
  int size() const noexcept { return static_cast<int>(members_.size()); }

 private:
  friend class SimTransport;
  /// Orders by the lower member, the higher, the channel. One number: every step of a rank looks for several.
  using Key = std::uint64_t;
  static Key key(int a, int b, Channel channel) {
    const auto low = static_cast<Key>(std::min(a, b)), high = static_cast<Key>(std::max(a, b));
    return low << 40 | high << 8 | static_cast<Key>(channel);
  }

  /// The connection of two members, or nullptr.
  SimConnection* find(int member, int peer, Channel channel);
  /// `member` starts to connect to `peer`.
  SimConnection& connect(int member, int peer, Channel channel);
  /// `member` takes every connection that its peers have set up.
  void accept_all(int member);
  /// `member` closes in good order.
  void close(int member);
  /// A rank of the schedule crashed.
  void on_crash(int rank);
  bool member_crashed(int member) const {
    return schedule_.crashed(members_[static_cast<std::size_t>(member)]);
  }

  SimSchedule& schedule_;
  std::vector<int> members_;
  SimNetworkOptions options_;
  std::map<Key, std::unique_ptr<SimConnection>> connections_;
  struct Incoming {
    SimConnection* connection;
    int side;
  };
  std::vector<std::vector<Incoming>> incoming_;  ///< By member: set up by a peer, not yet accepted.
  std::vector<bool> closed_;                     ///< By member.
  std::optional<SimDomainMemory> memory_;
};

}  // namespace lockstep::internal
