// Acceptor: a listening socket whose clients have to pass the handshake. At most kMaxHalfOpen handshakes are
// under way at once (more clients wait in the kernel's backlog), in fixed memory, each for at most
// kHandshakeDeadline until it is answered and kProofDeadline from then on. Two kinds give their place to one
// that waits: a client that has said no hello for kHelloPatience, and one whose proof is owed for longer than
// kHandshakeDeadline (a stranger who repeats what a rank once said is answered, too).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "lib/bootstrap/handshake.hpp"
#include "lib/net/fd.hpp"
#include "lib/net/reactor.hpp"

namespace lockstep::internal {

class HalfOpen;

/// Lives on the reactor's thread: constructed, used and destroyed there (Reactor::run_there), and calls back
/// there.
class Acceptor {
 public:
  struct Events {
    /// As HandshakeServerSide::admit; may be empty.
    std::function<HandshakeStatus(const HandshakeHello&)> admit;
    /// A proved client. Nothing after the handshake has been read from `socket`.
    std::function<void(Fd socket, const HandshakeHello& hello)> accepted;
    /// A client that was refused, with the sentence for this side's user. hello.rank is -1 when it said
    /// nothing sensible. May be empty.
    std::function<void(const HandshakeHello& hello, HandshakeStatus verdict, const Status& why)> refused;
  };

  /// Takes over a non-blocking listening socket (tcp_listen). rank and world as in HandshakeServerSide.
  Acceptor(Reactor& reactor, Fd listener, HandshakeKey key, std::int32_t rank, std::int32_t world,
           Events events);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  /// No handshake is under way.
  bool is_idle() const { return half_open_.empty(); }

 private:
  void accept_clients();
  void start_handshake(Fd socket);
  void finish_handshake(std::uint64_t id);
  void listen_again();
  bool is_full() const;
  /// Ends the oldest that may be asked to go. False when none may.
  bool make_room();
  /// Until somebody may be asked to go.
  void await_room();
  /// No descriptor or no memory is free, and the waiting client would be announced without end.
  void pause(const Status& why);

  Reactor& reactor_;
  const Fd listener_;
  const HandshakeKey key_;
  const std::int32_t rank_;
  const std::int32_t world_;
  const Events events_;
  Reactor::Handle watch_ = 0;  ///< 0 in a pause, and while nobody may be asked to make room.
  Reactor::Handle pause_ = 0;  ///< Timer; 0 when there is no pause.
  Reactor::Handle room_ = 0;   ///< Timer; 0 when no room is awaited, or nobody of whom time alone makes any.
  std::uint64_t next_id_ = 0;
  std::map<std::uint64_t, std::shared_ptr<HalfOpen>> half_open_;
};

}  // namespace lockstep::internal
