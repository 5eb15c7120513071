// SilenceWatch: notices peers whose kernel does not answer any more while something is on its way to them.
//
// Keepalive sees that only on an idle connection. TCP_USER_TIMEOUT sees it, too, but also breaks connections
// to peers that are well and only do not read, as while they compute: their window is full, and their kernel
// answers every question about it.
#pragma once

#include <map>
#include <mutex>

#include "lib/net/reactor.hpp"

namespace lockstep::internal {

/// Thread-safe. Looks at its connections about once a second, on the reactor's thread.
class SilenceWatch {
 public:
  SilenceWatch(Reactor& reactor, Env& env) : reactor_(reactor), env_(env) {}
  /// Nothing may be watched any more.
  ~SilenceWatch();
  SilenceWatch(const SilenceWatch&) = delete;
  SilenceWatch& operator=(const SilenceWatch&) = delete;

  /// From now on until remove(), which comes before the descriptor is closed: shuts the connection `fd` down
  /// once its peer is_silent() (lib/net/stream_io.hpp). Reads and writes then end, and waits for them, too.
  void add(int fd);
  void remove(int fd);
  /// Whether that happened.
  bool fell_silent(int fd);

 private:
  void look();
  void look_later();  // mutex_ held.

  Reactor& reactor_;
  Env& env_;
  std::mutex mutex_;
  std::map<int, bool> silent_;  // Of every descriptor, whether it fell silent.
  Reactor::Handle timer_ = 0;   // 0: nothing is watched.
};

}  // namespace lockstep::internal
