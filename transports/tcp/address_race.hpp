// AddressRace: tries the addresses of a peer, best first, until one passes the handshake.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "transports/tcp/outgoing_call.hpp"

namespace lockstep::internal {

/// The next address is called when one failed, or has not answered for kNextAddressDelay; the first that
/// passes the handshake ends the others before they could pass theirs, and wins with the peer's receipt.
/// Lives on the reactor's thread, as OutgoingCall does.
class AddressRace {
 public:
  using Outcome = OutgoingCall::Outcome;

  /// `done` is called once, perhaps before start() returned, and may destroy the race. When every address
  /// failed, its status says what happened at each; the outcome is of the one that leaves most hope, but no
  /// silence counts where another address refused.
  AddressRace(Reactor& reactor, Env& env, const HandshakeKey& key, const HandshakeHello& hello,
              std::vector<HostPort> addresses, std::function<void(Outcome, Status)> done);
  ~AddressRace();
  AddressRace(const AddressRace&) = delete;
  AddressRace& operator=(const AddressRace&) = delete;

  void start() { call_next(); }
  Fd take_socket() { return std::move(socket_); }

 private:
  void call_next();
  void called(std::size_t which, Outcome outcome, Status why);
  void passed(std::size_t which);
  void finish(Outcome outcome, Status why);
  Status all_failed() const;

  Reactor& reactor_;
  Env& env_;
  const HandshakeKey key_;
  const HandshakeHello hello_;
  const std::vector<HostPort> addresses_;
  std::function<void(Outcome, Status)> done_;
  std::vector<std::unique_ptr<OutgoingCall>> calls_;  // Of the first addresses; null once another passed.
  std::vector<Status> failures_;                      // In the order of the addresses.
  std::size_t failed_ = 0;
  Outcome hope_ = Outcome::refused;  // The most of any that failed.
  bool any_refused_ = false;
  bool any_passed_ = false;
  Reactor::Handle timer_ = 0;
  Fd socket_;
};

}  // namespace lockstep::internal
