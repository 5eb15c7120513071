// A matcher over links that a test moves by hand, and the messages that it is given.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <vector>

#include "collectives/engine/matcher.hpp"
#include "tests/engine/scripted_links.hpp"

namespace lockstep::internal::testing {

/// A message of bytes, and what becomes of it.
struct Letter {
  Operation operation;
  std::vector<std::byte> memory;
  std::optional<Status> end;
};

inline FrameHeader offer(std::size_t count, int tag = 0, std::uint64_t number = 0) {
  FrameHeader header = frame(FrameKind::offer, number, count <= kEagerBytes ? count : 0);
  header.index = count <= kEagerBytes ? 1 : 0;
  header.tag = tag;
  header.facts.count = count;
  return header;
}
inline constexpr std::size_t kLong = kEagerBytes + 1;

class MatcherTest : public ::testing::Test, public Matcher::Sink {
 protected:
  void complete(Operation& operation, Status status) override {
    Letter& letter = *letters_.at(&operation);
    EXPECT_FALSE(letter.end) << "ended twice";
    letter.end = std::move(status);
  }
  std::optional<Status> cause_of_loss(int, const Status& why) override { return why; }

  void post(Letter& letter, bool is_send, std::size_t count, int tag = 0, int peer = 1) {
    letter.memory.assign(count, std::byte{1});
    letters_[&letter.operation] = &letter;
    Message& message = letter.operation.message;
    message.is_send = is_send;
    message.buffer = letter.memory.data();
    message.count = count;
    message.type = DataType::u8;
    message.peer = peer;
    message.tag = tag;
    matcher_.post(letter.operation);
  }
  void send(Letter& letter, std::size_t count) { post(letter, true, count); }
  void receive(Letter& letter, std::size_t count, int tag = 0, int peer = 1) {
    post(letter, false, count, tag, peer);
  }
  void arrive(const FrameHeader& header) { link_.heads.push_back(header); }
  static ErrorCode code_of(const Letter& letter) { return letter.end ? letter.end->code() : ErrorCode::ok; }
  static void expect_received(const Letter& letter, std::size_t count, int tag = 0) {
    ASSERT_TRUE(letter.end && letter.end->ok()) << (letter.end ? letter.end->message() : "has not ended");
    EXPECT_EQ(letter.operation.received.source, 1);
    EXPECT_EQ(letter.operation.received.tag, tag);
    EXPECT_EQ(letter.operation.received.count, count);
    EXPECT_EQ(letter.memory[count - 1], std::byte{7});
  }

  ScriptedTransport transport_;
  ScriptedLink& link_ = transport_.at(1, Channel::point_to_point);
  ScriptedLink& other_link_ = transport_.at(2, Channel::point_to_point);
  Matcher matcher_{&transport_, *this, 3, 0, false};
  std::map<const Operation*, Letter*> letters_;
};

}  // namespace lockstep::internal::testing
