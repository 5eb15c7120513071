// Acceptor: a listening socket whose clients have to pass the handshake. At most kMaxHalfOpen handshakes are
// under way at once (more clients wait in the kernel's backlog), in fixed memory, each for at most
// kHandshakeDeadline until it is answered and kProofDeadline from then on. A client whose proof is owed for
// longer than kHandshakeDeadline gives its place to one that waits: an answer costs a stranger no secret.
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
    std::function<void(const HandshakeHello& hello, const Status& why)> refused;
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
  /// False when nobody is late.
  bool drop_a_late_one();
  /// No descriptor or no memory is free, and the waiting client would be announced without end.
  void pause();

  Reactor& reactor_;
  const Fd listener_;
  const HandshakeKey key_;
  const std::int32_t rank_;
  const std::int32_t world_;
  const Events events_;
  Reactor::Handle watch_ = 0;  ///< 0 in a pause, and while kMaxHalfOpen handshakes are under way and in time.
  Reactor::Handle pause_ = 0;  ///< Timer; 0 when there is no pause.
  std::uint64_t next_id_ = 0;
  std::map<std::uint64_t, std::shared_ptr<HalfOpen>> half_open_;
};

}  // namespace lockstep::internal
