#include "transports/tcp/lingering_close.hpp"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>

#include "lib/net/stream_io.hpp"

namespace lockstep::internal {
namespace {

// The reactor looks after so long, then at intervals that double: acknowledgements ring no bell.
constexpr Nanos kFirstPause = 1'000'000, kLongestPause = 250'000'000;
// One look reads no more, lest a peer that sends on and on keep whoever looks. (On the stack of whoever
// looks, which may be a small one: `ulimit -s`.)
constexpr std::size_t kReadBytes = 4 << 10;
constexpr int kMostReads = 1024;

/// Reads to nowhere what is here. Whether nothing can come any more.
bool has_ended(const Fd& socket) {
  std::array<std::byte, kReadBytes> nowhere;
  for (int i = 0; i < kMostReads; ++i) {
    const Transfer got = receive_some(socket.get(), nowhere);
    if (got.ended || got.error != 0) return true;
    if (got.bytes == 0) return false;
  }
  return false;
}

bool all_acknowledged(const Fd& socket) {
  int outstanding = 0;
  return ioctl(socket.get(), SIOCOUTQ, &outstanding) != 0 || outstanding == 0;
}

struct Lingering {
  Fd socket;
  Nanos end, pause = kFirstPause;
};

// Closes it, or has the reactor look again.
void look(Reactor& reactor, const std::shared_ptr<Lingering>& connection) {
  if (has_ended(connection->socket) || all_acknowledged(connection->socket)) return;
  const Nanos now = real_env().now();
  if (now >= connection->end) return;
  const Nanos next = std::min(now + connection->pause, connection->end);
  connection->pause = std::min(2 * connection->pause, kLongestPause);
  reactor.at(next, [&reactor, connection] { look(reactor, connection); });
}

}  // namespace

void close_lingering(Reactor& reactor, Fd socket, Nanos most) {
  if (!socket) return;
  ::shutdown(socket.get(), SHUT_WR);
  look(reactor, std::make_shared<Lingering>(Lingering{std::move(socket), real_env().now() + most}));
}

}  // namespace lockstep::internal
