// What the matcher makes of a link that ends, and of frames that no matcher sends.
#include "collectives/engine/matcher.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>

#include "collectives/engine/limits.hpp"
#include "tests/transports/link_fixtures.hpp"

namespace lockstep::internal {
namespace {

const Status kEnded(ErrorCode::peer_lost, "it closed the connection", 1);

/// Hands out what a test puts into it, and keeps what is sent.
class ScriptedLink final : public Link {
 public:
  Result<bool> send(const FrameHeader& header, std::span<const std::byte>, SendCursor&) override {
    if (!sends) return kEnded;
    sent.push_back(header);
    return true;
  }
  Result<const FrameHeader*> peek(const Awaited*) override {
    if (!heads.empty()) return &heads.front();
    if (ended) return kEnded;
    return nullptr;
  }
  Result<std::size_t> read(std::span<std::byte> into) override {
    std::memset(into.data(), 7, into.size());
    return into.size();
  }
  Result<std::span<const std::byte>> borrow(std::size_t, std::size_t) override {
    return std::span<const std::byte>();
  }
  void release(std::size_t) override {}
  void pop() override { heads.pop_front(); }
  pollfd poll_entry() const override { return {-1, 0, 0}; }
  std::uint64_t bytes_sent() const override { return 0; }

  bool sends = true, ended = false;
  std::deque<FrameHeader> heads, sent;
};

class MatcherTest : public ::testing::Test, public Matcher::Sink {
 protected:
  void complete(Operation& operation, Status status) override { ended_.emplace(&operation, status); }
  std::optional<Status> cause_of_loss(int, const Status& why) override { return why; }

  Operation& post(Operation& operation, bool is_send, std::size_t count, int tag = 0) {
    operation.kind = Operation::Kind::message;
    operation.message.is_send = is_send;
    operation.message.buffer = memory_;
    operation.message.count = count;
    operation.message.type = DataType::u8;
    operation.message.peer = 1;
    operation.message.tag = tag;
    matcher_.post(operation);
    return operation;
  }
  static FrameHeader offer(std::size_t count, bool eager, std::uint64_t number = 0) {
    FrameHeader header;
    header.kind = FrameKind::offer;
    header.sequence = number;
    header.index = eager ? 1 : 0;
    header.bytes = eager ? count : 0;
    header.facts.type = DataType::u8;
    header.facts.count = count;
    return header;
  }
  /// ok() while it has not ended, too.
  Status status_of(const Operation& operation) { return ended_[&operation]; }
  bool has_ended(const Operation& operation) const { return ended_.contains(&operation); }

  ScriptedLink link_;
  testing::OneLink transport_{link_};
  Matcher matcher_{&transport_, *this, 2, 0, false};
  std::map<const Operation*, Status> ended_;
  std::byte memory_[2 * kEagerBytes] = {};
};

// A link's errors are final for their direction.
TEST_F(MatcherTest, WhatCameBeforeASendFailedIsReceived) {
  Operation receive, send, later;
  post(receive, false, 10);
  post(later, false, 10);
  post(send, true, 10);
  link_.sends = false;
  link_.heads.push_back(offer(10, true));
  matcher_.step();
  ASSERT_TRUE(has_ended(receive));
  EXPECT_TRUE(status_of(receive).ok()) << status_of(receive).message();
  EXPECT_EQ(memory_[9], std::byte{7});
  EXPECT_EQ(status_of(send).code(), ErrorCode::peer_lost);
  EXPECT_EQ(status_of(later).code(), ErrorCode::peer_lost);
}

}  // namespace
}  // namespace lockstep::internal
