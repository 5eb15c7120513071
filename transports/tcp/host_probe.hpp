// HostProbe: tries all addresses of some ranks at once, each with the authenticated handshake.
#pragma once

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "transports/tcp/outgoing_call.hpp"
#include "transports/tcp/reachability.hpp"

namespace lockstep::internal {

struct ProbeTarget {
  int host = 0;
  int rank = 0;
  std::string name;  ///< For messages.
  std::vector<HostPort> addresses;
};

class HostProbe {
 public:
  /// With `all_ways` it is not content with the first answer, and gives the others a moment.
  HostProbe(Reactor& reactor, const HandshakeKey& key, const HandshakeHello& hello, bool all_ways = false)
      : reactor_(reactor), key_(key), hello_(hello), all_ways_(all_ways) {}
  HostProbe(const HostProbe&) = delete;
  HostProbe& operator=(const HostProbe&) = delete;

  /// Ends when of every target one address answered, or all failed, or after `timeout`. Where a connection
  /// broke in the handshake it tries again, as for links (kConnectAttempts). Says nothing of those
  /// that it had no descriptors for. Blocks; not to be called on the reactor's thread.
  ReachRow run(const std::vector<ProbeTarget>& targets, std::chrono::milliseconds timeout);

 private:
  struct Call {
    HostPort address;
    std::string failure;  ///< Empty while nothing is known.
    bool answered = false;
    int attempts = 0;
    std::unique_ptr<OutgoingCall> call;
  };
  struct Effort {
    std::string name;
    HandshakeHello hello;
    std::vector<Call> calls;
    std::string reached;  ///< The address that answered.
    std::size_t failed = 0;
    std::size_t answered = 0;
    bool untried = false;  ///< At some address, for want of descriptors here: nothing is known.
    bool settled() const { return answered > 0 || failed == calls.size(); }
    bool complete() const { return answered + failed == calls.size(); }
  };

  void start(const std::vector<ProbeTarget>& targets, std::chrono::milliseconds timeout);
  void begin(Effort& effort, Call& call);
  void called(Effort& effort, Call& call, OutgoingCall::Outcome outcome, const Status& why);
  void end_if_settled();
  void end();

  Reactor& reactor_;
  const HandshakeKey key_;
  const HandshakeHello hello_;
  const bool all_ways_;
  std::vector<Effort> efforts_;  // Reactor's thread only, until done_.
  Reactor::Handle timer_ = 0, patience_ = 0;
  bool ended_ = false;
  std::promise<void> done_;
};

}  // namespace lockstep::internal
