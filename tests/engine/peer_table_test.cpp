// What the engine says of itself to peers: probes, and after a failure the rest of what was under way.
#include "collectives/engine/peer_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/transports/link_fixtures.hpp"

namespace lockstep::internal {
namespace {

constexpr std::size_t kSlice = 1 << 10;

/// Takes a slice at each call, as a socket with room does, until it ends.
class SlicingLink final : public Link {
 public:
  Result<bool> send(const FrameHeader& header, std::span<const std::byte> payload,
                    SendCursor& cursor) override {
    if (ended) return Status(ErrorCode::peer_lost, "it closed the connection", 1);
    cursor.header_bytes = sizeof header;
    cursor.payload_bytes = std::min(payload.size(), cursor.payload_bytes + kSlice);
    return cursor.payload_bytes == payload.size();
  }
  Result<const FrameHeader*> peek(const Awaited*) override { return nullptr; }
  Result<std::size_t> read(std::span<std::byte>) override { return std::size_t{0}; }
  Result<std::span<const std::byte>> borrow(std::size_t, std::size_t) override {
    return std::span<const std::byte>();
  }
  void release(std::size_t) override {}
  void pop() override {}
  pollfd poll_entry() const override { return {-1, 0, 0}; }
  std::uint64_t bytes_sent() const override { return 0; }
  bool reaches_peer() const override { return reaches; }

  bool ended = false, reaches = true;
};

/// Who hears that nothing moved goes to sleep, and no event comes from a link that had room all the time.
TEST(PeerTable, ASliceOfALongMessageIsProgress) {
  SlicingLink link;
  testing::OneLink transport(link);
  PeerTable table(transport, Channel::collective, 2, 0);
  table.post(1, {}, std::string(10 * kSlice, 'x'));
  int passes = 0;
  for (; table.has_posted(); ++passes) ASSERT_TRUE(table.flush()) << passes;
  EXPECT_EQ(passes, 10);
  EXPECT_FALSE(table.flush());
}

/// Of what was not sent only that is missed which the peer may still wait for.
TEST(PeerTable, WhoseLinkHasEndedMissesNothing) {
  FrameHeader revoke;
  revoke.kind = FrameKind::revoke;
  for (const bool reaches : {true, false}) {
    SlicingLink link;
    link.ended = true;
    link.reaches = reaches;
    testing::OneLink transport(link);
    PeerTable table(transport, Channel::collective, 2, 0);
    table.post(1, revoke, "why");
    table.flush();
    EXPECT_FALSE(table.has_posted());
    EXPECT_EQ(table.has_missed(1), !reaches);
    EXPECT_EQ(table.needs_no_word(1), reaches);
  }
}

TEST(PeerTable, WhoWasToldNeedsNoWord) {
  FrameHeader revoke;
  revoke.kind = FrameKind::revoke;
  SlicingLink link;
  testing::OneLink transport(link);
  PeerTable table(transport, Channel::collective, 2, 0);
  table.post(1, {});
  table.flush();
  EXPECT_FALSE(table.needs_no_word(1));
  table.post(1, revoke, "why");
  table.flush();
  EXPECT_TRUE(table.needs_no_word(1));
  EXPECT_FALSE(table.has_missed(1));
}

}  // namespace
}  // namespace lockstep::internal
