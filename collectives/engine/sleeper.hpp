// Sleeper: how a rank that waits for peers goes to sleep and is woken: on the doorbell's futex where only
// memory is awaited, in epoll where sockets are awaited too. What it sleeps on is derived from the transport.
#pragma once

#include <cstdint>
#include <vector>

#include "lib/net/fd.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

/// What was readable before declare() wakes nobody: a message for a later step may lie unread in a socket
/// for as long as an earlier step waits.
class Sleeper {
 public:
  Sleeper(Transport* transport, int size, int self);

  /// Declares this rank asleep. Look once more for progress before sleep(). `for_poll`: the sleeper will use
  /// descriptor(). `others_held`: links for calls that are not urgent do not wake it. Returns whether it
  /// sleeps in poll. Where it throws std::bad_alloc nothing is declared.
  bool declare(bool for_poll, bool others_held);
  /// Sleeps until rung, until a socket is ready, or `timeout`. Without the engine's lock.
  void sleep(bool in_poll, Nanos timeout);
  void undeclare();
  /// Becomes readable when there may be progress; refreshed by declare().
  int descriptor() const { return epoll_.get(); }
  /// Wakes all sleepers of this rank from another thread, whatever they declared: one of several may have
  /// taken the declaration back.
  void wake();

 private:
  struct Watched {
    int fd;
    std::uint32_t events;
  };
  Doorbell& bell();
  int bell_fd() const;
  void want(const pollfd& entry, std::uint32_t mode);
  void list_wanted(bool others_held);
  void watch_wanted();
  template <class Which>
  void unwatch(Which which);
  bool refresh(bool others_held);
  void forget_past_events();

  Transport* transport_;
  Domain* domain_;
  int size_, self_;
  Doorbell own_bell_{};  // Without a domain.
  Fd bell_fd_;           // Without a domain.
  Fd epoll_;
  std::vector<Watched> watched_, wanted_;
  std::vector<pollfd> beyond_links_;
};

}  // namespace lockstep::internal
