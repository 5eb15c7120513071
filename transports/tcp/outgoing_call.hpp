// OutgoingCall: one attempt to connect to a peer and to pass its handshake.
//
// Who calls has the last word of the handshake, and cannot know by itself whether it arrived: the connection
// may break while it is on its way, and the peer would wait for one that this side believes it has. So who
// was called says one byte more, the receipt, before anything else.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "lib/base/env.hpp"
#include "lib/bootstrap/handshake.hpp"
#include "lib/net/fd.hpp"
#include "lib/net/reactor.hpp"
#include "lib/net/tcp_socket.hpp"

namespace lockstep::internal {

/// Lives on the reactor's thread: constructed, used and destroyed there, and calls back there.
class OutgoingCall {
 public:
  /// Of those that failed each leaves more hope than the one before.
  enum class Outcome : std::uint8_t {
    connected,  ///< take_socket() is an authenticated connection.
    refused,  ///< The other side's system or its handshake said no, or this side's system (`system`): another
              ///< attempt would end the same way.
    broken,   ///< The connection ended or none came about in time: another attempt may succeed.
    silent,  ///< The peer's system has a connection that the peer has not answered in time: the peer is late,
             ///< stopped perhaps, or its host has vanished since. Another attempt tells which.
  };

  /// `done` is called once, with words that name no rank, perhaps before start() returned, and may destroy
  /// the call. With `passed`, which is called when the peer has passed the handshake and may not, it comes
  /// with the receipt, and else then.
  OutgoingCall(Reactor& reactor, Env& env, const HandshakeKey& key, const HandshakeHello& hello,
               const HostPort& to, std::function<void(Outcome, Status)> done,
               std::function<void()> passed = {});
  ~OutgoingCall() { stop(); }
  OutgoingCall(const OutgoingCall&) = delete;
  OutgoingCall& operator=(const OutgoingCall&) = delete;

  void start();
  Fd take_socket();

 private:
  Status open();
  void give_up();
  void stop();
  void step();
  bool send_outgoing();
  bool receive_wanted();
  void await_receipt();
  std::size_t receive(std::span<std::byte> into);
  void broken_off(const std::string& evidence);
  void wait_for(std::uint32_t events);
  void finish(Outcome outcome, Status why);

  Reactor& reactor_;
  Env& env_;
  HandshakeClient handshake_;
  const HostPort to_;
  const int peer_;
  std::function<void(Outcome, Status)> done_;
  const std::function<void()> passed_;
  Fd socket_;
  bool connected_ = false;
  bool has_passed_ = false;
  std::uint32_t events_ = 0;
  Reactor::Handle watch_ = 0;
  Reactor::Handle timer_ = 0;
};

/// By who was called. False: the connection is broken, and the peer calls again.
bool send_receipt(const Fd& socket);

}  // namespace lockstep::internal
