// Switchboard: the listening sockets of a rank, one an address, and the connections between pairs of ranks
// that are made through it.
//
// A connection belongs to (peer, channel); the channel's meaning is the caller's. The lower rank of a pair
// connects, the higher accepts, so that a pair never makes two. A higher rank that waits in vain for
// kKnockDelay connects only to ask: it knocks, hangs up, and after a while asks again. All of it runs on the
// reactor's thread.
// Strangers (port scans, wrong secrets, other jobs) are shown the door without effect.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lib/base/env.hpp"
#include "lib/base/status.hpp"
#include "lib/bootstrap/acceptor.hpp"
#include "lib/bootstrap/session.hpp"
#include "lib/net/reactor.hpp"
#include "lib/net/silence_watch.hpp"
#include "transports/tcp/address_race.hpp"
#include "transports/tcp/published_address.hpp"
#include "transports/tcp/ways.hpp"

namespace lockstep::internal {

/// Thread-safe; want() and take() never block.
class Switchboard {
 public:
  /// Listens, publishes the addresses as "tcp/<rank>", and reads everybody's: blocks until all ranks did, at
  /// most `timeout`. The session must outlive the switchboard. Errors: no usable interface
  /// (LOCKSTEP_IFNAME), several hosts without a secret, a rank that did not come, ranks that disagree on
  /// LOCKSTEP_TCP_SOCKETS, which goes before `sockets_per_link`; hosts that cannot reach each other, with the
  /// matrix of who reached whom, equal on all ranks.
  static Result<std::unique_ptr<Switchboard>> make(Session& session, Env& env,
                                                   std::chrono::milliseconds timeout,
                                                   int sockets_per_link = 1);
  ~Switchboard();
  Switchboard(const Switchboard&) = delete;
  Switchboard& operator=(const Switchboard&) = delete;

  /// Starts to make the connection. Repeated calls do nothing more. Where the hosts have several networks
  /// that are as fast, connections of different `rail` take turns on them.
  void want(int peer, std::uint64_t channel, int rail = 0);
  /// The connection, once: with the options of a data connection set, nothing read from it yet. Nothing while
  /// it is not here (also when the peer wanted it and this rank did not). Error: peer_lost, or unauthorized,
  /// naming the peer; system, blaming nobody, where this side lacks what it takes; final. `called`: the
  /// peer's number in the group that asks, where that has others than the session.
  Result<std::optional<Fd>> take(int peer, std::uint64_t channel, std::optional<int> called = {});
  /// Whether a connection that either side wants can still be expected from take().
  bool is_under_way(int peer, std::uint64_t channel);
  /// Nobody here asks for this channel any more, unless by want(): what is under way or not taken is dropped.
  /// Peers whose connections come later see them end at once.
  void forget(std::uint64_t channel);

  /// Rises whenever a take() may give something new.
  std::uint64_t changes() const noexcept { return changes_.load(std::memory_order_acquire); }
  /// `eventfd` is written to whenever changes() rises, until detach() returned.
  void attach(int eventfd);
  void detach(int eventfd);
  /// Empties `eventfd` of what was written to it for all changes so far, and returns changes().
  std::uint64_t drain(int eventfd);

  /// What connections to `peer` are to be watched by; null inside a host, whose kernel does not fall silent.
  SilenceWatch* silence_watch(int peer) { return on_this_host(peer) ? nullptr : &silence_watch_; }

  /// Connections that a link between two ranks consists of (LOCKSTEP_TCP_SOCKETS), equal on all ranks.
  int sockets_per_link() const noexcept { return sockets_; }
  /// Where this rank listens, best first.
  const std::vector<HostPort>& addresses() const noexcept { return own_addresses_; }

 private:
  using Key = std::pair<int, std::uint64_t>;  // peer, channel
  /// Channels that nobody asks for any more, the last kForgottenChannels of them.
  class Forgotten {
   public:
    void add(std::uint64_t channel);
    void remove(std::uint64_t channel) { channels_.erase(channel); }
    bool has(std::uint64_t channel) const { return channels_.count(channel) > 0; }

   private:
    std::set<std::uint64_t> channels_;
    std::deque<std::uint64_t> order_;
  };
  struct Slot {
    bool wanted = false;
    bool coming = false;  // The peer knows that it is connected.
    bool taken = false;
    std::optional<Fd> socket;
    Status failure;  // Without the name of the peer, which its words go on from.
  };
  // Reactor's thread only: what this rank does for a wanted connection.
  struct Effort {
    int attempts = 0;
    int rail = 0;
    Nanos began = 0, called = 0;  // The first attempt, and the last.
    Reactor::Handle timer = 0;    // Higher rank: until it knocks.
    std::unique_ptr<AddressRace> call;
  };

  Switchboard(Session& session, Env& env, int sockets);
  void open(Listeners listeners);
  void adopt(Ways ways);
  void on_loss(const Loss& loss);

  void want_locked(Key key, int rail);  // mutex_ held.
  void begin(Key key, int rail);
  std::vector<HostPort> ways_to(int peer, int rail) const;
  void call(Key key);
  void call_after(std::chrono::milliseconds delay, Key key);
  bool tries_again(const Effort& effort) const;
  void called(Key key, AddressRace::Outcome outcome, Status why);
  HandshakeStatus admit(const HandshakeHello& hello) const;
  void accepted(Fd socket, const HandshakeHello& hello);
  void accepted_link(Key key, Fd socket);
  void knocked(Key key, int rail);
  void connected(Key key, Fd socket);
  void fail(Key key, Status why);
  void fail_without_memory(Key key);
  void give_up_effort(Key key);
  bool is_forgotten(std::uint64_t channel);
  void announce_change();  // mutex_ held.
  void post(std::function<void()> task);
  bool on_this_host(int peer) const;
  Status named(const Status& why, int peer, int number) const;

  Session& session_;
  Env& env_;
  Reactor& reactor_;
  const int rank_;
  const int sockets_;
  const HandshakeKey key_;
  const std::string congestion_;
  const std::uint64_t loss_callback_;
  SilenceWatch silence_watch_;
  int own_rails_ = 1;
  std::vector<HostPort> own_addresses_;
  Ways ways_;                                         // Reactor's thread only. Nobody is called before
  bool met_ = false;                                  // they are known.
  std::vector<std::unique_ptr<Acceptor>> acceptors_;  // Reactor's thread only.
  std::map<Key, Effort> efforts_;                     // Reactor's thread only.
  // Ends before tasks that were posted late.
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);

  std::mutex mutex_;
  std::map<Key, Slot> slots_;
  Forgotten forgotten_;
  std::map<int, Status> lost_;
  std::set<int> attached_;
  std::atomic<std::uint64_t> changes_{0};
};

}  // namespace lockstep::internal
