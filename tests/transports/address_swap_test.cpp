// Two ranks tell each other where their RDMA queue pairs are, over real sockets; no device is needed.
#include "transports/verbs/address_swap.hpp"

#include <gtest/gtest.h>

#include <cstring>

#include "lib/net/stream_io.hpp"
#include "tests/transports/link_fixtures.hpp"

namespace lockstep::internal {
namespace {

QueuePairAddress address_of(std::uint32_t number) {
  QueuePairAddress address;
  address.port.gid[15] = static_cast<std::uint8_t>(number);
  address.number = number;
  address.first_packet = 77 * number;
  return address;
}

AddressSwap begin(Fd socket, int peer, std::uint32_t own) {
  auto begun = AddressSwap::begin(std::move(socket), peer, address_of(own));
  EXPECT_TRUE(begun.ok());
  return std::move(*begun);
}

QueuePairAddress await_address(AddressSwap& swap) {
  for (;;) {
    auto here = swap.address();
    EXPECT_TRUE(here.ok()) << here.status().message();
    if (!here.ok()) return {};
    if (*here) return **here;
  }
}

TEST(AddressSwap, EachHearsTheOthersAddressAndThatItIsReady) {
  auto sockets = testing::connected_sockets();
  AddressSwap a = begin(std::move(sockets.a), 1, 10), b = begin(std::move(sockets.b), 0, 20);
  const QueuePairAddress seen_by_a = await_address(a), seen_by_b = await_address(b);
  EXPECT_EQ(std::memcmp(&seen_by_a, std::vector{address_of(20)}.data(), sizeof seen_by_a), 0);
  EXPECT_EQ(std::memcmp(&seen_by_b, std::vector{address_of(10)}.data(), sizeof seen_by_b), 0);
  EXPECT_FALSE(a.peer_is_ready().value()) << "b has not said so";
  ASSERT_TRUE(b.say_ready().ok());
  while (!a.peer_is_ready().value()) {
  }
  EXPECT_FALSE(b.peer_is_ready().value());
}

TEST(AddressSwap, AnAddressInPiecesIsPutTogether) {
  auto sockets = testing::connected_sockets();
  AddressSwap swap = begin(std::move(sockets.a), 1, 10);
  const QueuePairAddress theirs = address_of(20);
  const auto bytes = std::as_bytes(std::span(&theirs, 1));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    ASSERT_FALSE(swap.address().value()) << "after " << i << " bytes";
    ASSERT_EQ(send_some(sockets.b.get(), bytes.subspan(i, 1)).bytes, 1u);
  }
  EXPECT_EQ(await_address(swap).number, 20u);
}

TEST(AddressSwap, AWordThatIsNoneIsAnError) {
  auto sockets = testing::connected_sockets();
  AddressSwap swap = begin(std::move(sockets.a), 7, 10);
  const QueuePairAddress theirs = address_of(20);
  ASSERT_EQ(send_some(sockets.b.get(), std::as_bytes(std::span(&theirs, 1))).bytes, sizeof theirs);
  await_address(swap);
  const std::byte strange{2};
  ASSERT_EQ(send_some(sockets.b.get(), {&strange, 1}).bytes, 1u);
  Result<bool> ready = false;
  while (ready.ok()) ready = swap.peer_is_ready();
  EXPECT_EQ(ready.status().culprit(), 7);
  EXPECT_NE(ready.status().message().find("what is no address"), std::string::npos)
      << ready.status().message();
}

TEST(AddressSwap, APeerThatBreaksOffIsNamed) {
  auto sockets = testing::connected_sockets();
  AddressSwap swap = begin(std::move(sockets.a), 7, 10);
  sockets.b.reset();
  Result<std::optional<QueuePairAddress>> here = swap.address();
  while (here.ok()) here = swap.address();
  EXPECT_EQ(here.status().code(), ErrorCode::peer_lost);
  EXPECT_EQ(here.status().culprit(), 7);
  EXPECT_NE(here.status().message().find("rank 7 broke off"), std::string::npos) << here.status().message();
}

}  // namespace
}  // namespace lockstep::internal
