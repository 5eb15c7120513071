// What the engine says of itself to peers: probes, and after a failure the rest of what was under way.
#include "collectives/engine/peer_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "collectives/engine/reason.hpp"
#include "tests/engine/scripted_links.hpp"
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
    if (cursor.header_bytes == 0) sent.push_back(header);
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
  std::vector<FrameHeader> sent;  // What was begun.
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

TEST(PeerTable, WhatIsSaidGoesBetweenMessagesAndBeforeTheNext) {
  SlicingLink link;
  testing::OneLink transport(link);
  PeerTable table(transport, Channel::collective, 2, 0);
  table.enter(7, {1});
  EXPECT_TRUE(table.may_send(1, 7));
  table.set_mid_message(1, true);
  table.post(1, {});
  table.post(0, {});  // To itself.
  EXPECT_FALSE(table.flush());
  EXPECT_TRUE(table.may_send(1, 7)) << "its message is half sent";
  table.set_mid_message(1, false);
  EXPECT_FALSE(table.may_send(1, 7));
  EXPECT_TRUE(table.flush());
  EXPECT_TRUE(table.may_send(1, 7));
  EXPECT_FALSE(table.has_posted());
  EXPECT_EQ(link.sent.size(), 1u);
}

/// What is begun of a message when its call fails is finished, from a copy, before anything else.
TEST(PeerTable, TheRestOfAMessageGoesFirstUnlessItIsTooLong) {
  for (const std::size_t size : {3 * kSlice, kMostAdopted + 1}) {
    SlicingLink link;
    testing::OneLink transport(link);
    PeerTable table(transport, Channel::collective, 2, 0);
    FrameHeader revoke, data;
    revoke.kind = FrameKind::revoke;
    data.kind = FrameKind::data;
    data.bytes = size;
    std::vector<std::byte> memory(size);
    SendCursor cursor{sizeof data, kSlice, 0};
    table.set_mid_message(1, true);
    table.post(1, revoke, "why");
    table.adopt_rest(1, data, memory, cursor);
    const bool adopted = size <= kMostAdopted;
    EXPECT_EQ(table.flush(), adopted);
    EXPECT_TRUE(link.sent.empty()) << "the rest comes first";
    while (table.flush()) {
    }
    EXPECT_EQ(link.sent.size(), adopted ? 1u : 0u);
    EXPECT_EQ(table.has_posted(), !adopted) << "nothing may be put between its bytes";
  }
}

/// Who leaves has more patience then.
TEST(PeerTable, KnowsThatWhatIsQueuedAwaitsALink) {
  testing::ScriptedTransport transport;
  PeerTable table(transport, Channel::urgent, 3, 0);
  for (const int peer : {1, 2}) transport.under_way.insert({peer, Channel::collective});
  transport.under_way.insert({2, Channel::urgent});
  EXPECT_FALSE(table.awaits_link()) << "nothing is queued";
  table.post(1, {});
  EXPECT_FALSE(table.awaits_link()) << "another link is under way";
  table.post(2, {});
  EXPECT_TRUE(table.awaits_link());
  transport.at(2, Channel::urgent);
  table.flush();
  EXPECT_FALSE(table.awaits_link());
}

TEST(PeerTable, WhoWasNeverReachedHasMissedWhatWasGivenUp) {
  SlicingLink link;
  testing::OneLink transport(link);
  PeerTable table(transport, Channel::collective, 2, 0);
  table.post(1, {});
  EXPECT_FALSE(table.has_missed(1));
  table.drop_posted();
  EXPECT_FALSE(table.has_posted());
  EXPECT_TRUE(table.has_missed(1));
}

// ---- what a revoke says ----

TEST(Reason, SurvivesTheTripAndIsCutToItsLimit) {
  const Status told = decode_reason(encode_reason(Status(ErrorCode::timeout, "too late", 2)), 3);
  EXPECT_EQ(told.code(), ErrorCode::timeout);
  EXPECT_EQ(told.culprit(), 2);
  EXPECT_EQ(told.message(), "too late");
  EXPECT_EQ(encode_reason(Status(ErrorCode::timeout, std::string(5000, 'x'))).size(), kMaxReasonBytes - 1)
      << "with its end it fits into shared memory";
}

TEST(Reason, ThatIsNoneIsAnAbortOfNobody) {
  for (const char* strange : {"", "0 1 x", "-3 1 x", "99 1 x", "nonsense"})
    EXPECT_EQ(decode_reason(strange, 3).code(), ErrorCode::aborted) << strange;
  for (const char* stranger : {"4 3 x", "4 -2 x", "4 99999999999 x", "nonsense", "4"})
    EXPECT_EQ(decode_reason(stranger, 3).culprit(), -1) << stranger;
}

}  // namespace
}  // namespace lockstep::internal
