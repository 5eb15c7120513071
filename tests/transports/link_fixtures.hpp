// What tests of links share: connected sockets, links over them, and messages with contents that tell every
// byte's place.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/net/fd.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal::testing {

struct SocketPair {
  Fd a, b;
};
/// A connected TCP pair over `host` ("127.0.0.1" or "::1"), both ends non-blocking.
SocketPair connected_sockets(const std::string& host = "127.0.0.1");

struct LinkPair {
  std::unique_ptr<Link> a, b;  ///< a's peer is rank 1, b's is rank 0.
};
/// Two ends of one link over `sockets` TCP connections; more than one makes it a StripedLink.
LinkPair connected_links(int sockets = 1, const std::string& host = "127.0.0.1");

/// A transport of two ranks whose one link, to rank 1, is there already.
class OneLink final : public Transport {
 public:
  explicit OneLink(Link& link) : link_(link) {}
  std::string_view name() const override { return "one link"; }
  Result<Link*> link(int, Channel) override { return &link_; }
  Status service() override { return {}; }
  Link* existing_link(int peer, Channel channel) override {
    return peer == 1 && channel == Channel::collective ? &link_ : nullptr;
  }
  void append_poll_entries(std::vector<pollfd>&) override {}
  Domain* domain() override { return nullptr; }
  void close() override {}

 private:
  Link& link_;
};

/// `bytes` pseudo-random bytes that depend on `seed`.
std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed);

/// A message on its way out.
struct Outgoing {
  FrameHeader header;
  std::vector<std::byte> payload;
  SendCursor cursor;
  bool done = false;
};
Outgoing message(std::size_t bytes, std::uint64_t seed);
/// One attempt. Whether the message is out.
Result<bool> push(Link& link, Outgoing& message);

/// A message on its way in, taken with read(), or with borrow(unit)/release() when unit > 0.
struct Incoming {
  explicit Incoming(std::size_t borrow_unit = 0) : unit(borrow_unit) {}
  std::size_t unit;
  std::optional<FrameHeader>
      awaited;        ///< Told to peek(), with the place of the payload unless it is borrowed.
  bool room = false;  ///< peek() hears that a header fits before that place.
  bool have_header = false;
  bool done = false;
  FrameHeader header;
  std::vector<std::byte> payload;
  std::vector<std::byte> memory;  ///< With room: where the payload lies until it is complete.
  std::size_t received = 0;
};
/// Waits until `link` has something to say: the end of what was sent may come a moment after it.
void await_something(Link& link);
/// Takes what is here. Whether the message is complete (and popped).
Result<bool> pull(Link& link, Incoming& message);

}  // namespace lockstep::internal::testing
