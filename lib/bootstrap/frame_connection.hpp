// FrameConnection: a connected socket on the reactor, on which frames (lib/bootstrap/store_protocol.hpp) come
// and go.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "lib/base/status.hpp"
#include "lib/net/fd.hpp"
#include "lib/net/reactor.hpp"
#include "lib/net/silence_watch.hpp"

namespace lockstep::internal {

/// Lives on the reactor's thread: opened, used and destroyed there, and calls back there. A callback may drop
/// the connection.
class FrameConnection : public std::enable_shared_from_this<FrameConnection> {
 public:
  struct Events {
    /// The body of a frame; an error hangs up with it.
    std::function<Status(std::span<const std::byte> body)> frame;
    /// The connection ended (peer_lost) or broke. Called once, last.
    std::function<void(const Status& why)> closed;
  };

  /// Frames with bodies above `most` bytes hang up, and so does the silence of another host, for which
  /// `watch`, which outlives the connection, looks after what was sent.
  static std::shared_ptr<FrameConnection> open(Reactor& reactor, SilenceWatch& watch, Fd socket,
                                               std::size_t most, Events events);
  ~FrameConnection();
  FrameConnection(const FrameConnection&) = delete;
  FrameConnection& operator=(const FrameConnection&) = delete;

  /// Queues a whole frame. Hangs up (later, on the reactor) when kMaxUnsentBytes are unread.
  void send(std::string_view frame);

 private:
  FrameConnection(Reactor& reactor, SilenceWatch& watch, Fd socket, std::size_t most, Events events);
  void start();
  void handle(std::uint32_t events);
  void read_some();
  Status take_frames();
  void write_some();
  void update_interest();
  Status ended(int error);
  void hang_up(Status why);
  void stop();

  Reactor& reactor_;
  SilenceWatch& silence_;
  Fd socket_;
  const std::size_t most_;
  Events events_;
  Reactor::Handle watch_ = 0;
  std::uint32_t interest_ = 0;
  std::string received_;
  std::string unsent_;
  std::size_t sent_ = 0;  ///< Of unsent_.
};

}  // namespace lockstep::internal
