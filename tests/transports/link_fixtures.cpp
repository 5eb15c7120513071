#include "tests/transports/link_fixtures.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cstring>

#include "lib/net/stream_io.hpp"
#include "lib/net/tcp_socket.hpp"
#include "tests/support/mix.hpp"
#include "transports/tcp/striped_link.hpp"
#include "transports/tcp/tcp_link.hpp"

namespace lockstep::internal::testing {
namespace {

// Borrowed in pieces no larger than this, so that every length of piece occurs.
constexpr std::size_t kBorrowAtMost = 100'000;

Result<std::size_t> pull_borrowed(Link& link, Incoming& message) {
  const std::size_t left = message.payload.size() - message.received;
  // The last element may be cut off in these tests, as it never is in a reduction.
  const std::size_t unit = left < message.unit ? 1 : message.unit;
  auto lent = link.borrow(unit, std::min(left, kBorrowAtMost));
  if (!lent.ok()) return lent.status();
  const std::size_t got = lent->size();
  EXPECT_EQ(got % unit, 0u);
  if (got > 0) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(lent->data()) % unit, 0u);
    std::memcpy(message.payload.data() + message.received, lent->data(), got);
  }
  link.release(got);
  return got;
}

}  // namespace

SocketPair connected_sockets(const std::string& host) {
  auto listener = tcp_listen({host, 0});
  EXPECT_TRUE(listener.ok()) << listener.status().message();
  auto client = start_connect(local_address(*listener));
  EXPECT_TRUE(client.ok()) << client.status().message();
  pollfd entry{listener->get(), POLLIN, 0};
  poll(&entry, 1, -1);
  auto server = accept_connection(*listener);
  EXPECT_TRUE(server.ok() && *server);
  EXPECT_EQ(connect_error(*client), 0);
  for (const Fd* socket : {&*client, &**server}) {
    const Status set = set_stream_options(*socket, {.congestion = "reno"});
    EXPECT_TRUE(set.ok()) << set.message();
  }
  return {std::move(*client), std::move(**server)};
}

LinkPair connected_links(int sockets, const std::string& host) {
  std::vector<std::unique_ptr<TcpLink>> a, b;
  for (int i = 0; i < sockets; ++i) {
    SocketPair pair = connected_sockets(host);
    a.push_back(std::make_unique<TcpLink>(std::move(pair.a), 1));
    b.push_back(std::make_unique<TcpLink>(std::move(pair.b), 0));
  }
  if (sockets == 1) return {std::move(a.front()), std::move(b.front())};
  auto striped_a = StripedLink::make(std::move(a), 1);
  auto striped_b = StripedLink::make(std::move(b), 0);
  EXPECT_TRUE(striped_a.ok() && striped_b.ok());
  return {std::move(*striped_a), std::move(*striped_b)};
}

std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> result(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    const std::uint64_t word = i % 8 == 0 ? mix(seed * 0x9e3779b97f4a7c15 + i) : 0;
    if (i + 8 <= bytes && i % 8 == 0) {
      std::copy_n(reinterpret_cast<const std::byte*>(&word), 8,
                  result.begin() + static_cast<std::ptrdiff_t>(i));
      i += 7;
    } else {
      result[i] = static_cast<std::byte>(mix(seed + i));
    }
  }
  return result;
}

Outgoing message(std::size_t bytes, std::uint64_t seed) {
  Outgoing result;
  result.header.sequence = seed;
  result.header.bytes = bytes;
  result.payload = pattern(bytes, seed);
  return result;
}

Result<bool> push(Link& link, Outgoing& message) {
  if (message.done) return true;
  auto sent = link.send(message.header, message.payload, message.cursor);
  if (sent.ok()) message.done = *sent;
  return sent;
}

namespace {

constexpr std::byte kUntouched{0x5a};

// With room: a header's, the payload's, and a byte that must stay as it is.
std::span<std::byte> place_of(Incoming& message, std::size_t bytes) {
  if (!message.room) {
    message.payload.resize(bytes);
    return message.payload;
  }
  if (message.memory.size() != sizeof(FrameHeader) + bytes + 1) {
    message.memory.resize(sizeof(FrameHeader) + bytes + 1);
    message.memory.back() = kUntouched;
  }
  return std::span(message.memory).subspan(sizeof(FrameHeader), bytes);
}

}  // namespace

Result<bool> pull(Link& link, Incoming& message) {
  if (message.done) return true;
  if (!message.have_header) {
    Awaited awaited;
    if (message.awaited) {
      awaited.header = *message.awaited;
      awaited.room_before = message.room;
      if (message.unit == 0) awaited.place = place_of(message, awaited.header.bytes);
    }
    auto head = link.peek(message.awaited ? &awaited : nullptr);
    if (!head.ok()) return head.status();
    if (*head == nullptr) return false;
    message.header = **head;
    message.have_header = true;
    message.payload.resize(message.header.bytes);
  }
  const std::span<std::byte> place =
      message.unit > 0 ? std::span(message.payload) : place_of(message, message.header.bytes);
  while (message.received < place.size()) {
    auto got = message.unit > 0 ? pull_borrowed(link, message) : link.read(place.subspan(message.received));
    if (!got.ok()) return got.status();
    if (*got == 0) return false;
    message.received += *got;
  }
  link.pop();
  if (message.room && message.unit == 0) {
    message.payload.assign(place.begin(), place.end());
    EXPECT_EQ(message.memory.back(), kUntouched);
  }
  message.done = true;
  return true;
}

void await_something(Link& link) {
  pollfd entry = link.poll_entry();
  ASSERT_EQ(poll(&entry, 1, 20'000), 1);
}

}  // namespace lockstep::internal::testing
