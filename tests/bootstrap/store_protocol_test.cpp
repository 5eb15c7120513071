#include "lib/bootstrap/store_protocol.hpp"

#include <gtest/gtest.h>

#include <array>

#include "lib/base/env.hpp"
#include "lib/bootstrap/limits.hpp"
#include "lib/bootstrap/wire.hpp"

namespace lockstep::internal {
namespace {

std::span<const std::byte> body_of(const std::string& frame) {
  const auto body = first_frame(as_bytes(frame), kMaxReplyBytes);
  EXPECT_TRUE(body.ok() && body.value().has_value());
  return *body.value();
}

std::vector<StoreRequest> samples() {
  std::vector<StoreRequest> requests(6);
  requests[0].verb = StoreVerb::set;
  requests[0].entries = {{"key", "value"}, {"other", std::string("\0\xff", 2)}};
  requests[1].verb = StoreVerb::get;
  requests[1].keys = {"a", "b", "c"};
  requests[1].timeout_ms = 120'000;
  requests[2].verb = StoreVerb::wait;
  requests[3].verb = StoreVerb::add;
  requests[3].keys = {"sum"};
  requests[3].delta = INT64_MIN;
  requests[4].verb = StoreVerb::leave;
  requests[5].verb = StoreVerb::lost;
  requests[5].loss = {3, "killed by SIGKILL"};
  return requests;
}

TEST(StoreProtocol, RequestsSurviveTheTrip) {
  for (const StoreRequest& sent : samples()) {
    const std::string frame = encode(sent);
    const auto got = decode_request(body_of(frame));
    ASSERT_TRUE(got.ok());
    EXPECT_EQ(got.value().verb, sent.verb);
    EXPECT_EQ(got.value().entries, sent.entries);
    EXPECT_EQ(got.value().keys, sent.keys);
    EXPECT_EQ(got.value().timeout_ms, sent.timeout_ms);
    EXPECT_EQ(got.value().delta, sent.delta);
    EXPECT_EQ(got.value().loss.rank, sent.loss.rank);
    EXPECT_EQ(got.value().loss.evidence, sent.loss.evidence);
  }
}

TEST(StoreProtocol, RepliesSurviveTheTrip) {
  StoreReply sent;
  sent.status = Status(ErrorCode::timeout, "too late");
  sent.values = {"", "value"};
  sent.present = {true, false};
  sent.sum = -5;
  const std::string frame = encode(sent);
  const auto got = decode_reply(body_of(frame));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got.value().status.code(), ErrorCode::timeout);
  EXPECT_EQ(got.value().status.message(), "too late");
  EXPECT_EQ(got.value().values, sent.values);
  EXPECT_EQ(got.value().present, sent.present);
  EXPECT_EQ(got.value().sum, -5);
}

// Its text would be lost, and with it what the other side has to say.
TEST(StoreProtocol, ASuccessWithATextIsRefused) {
  std::string body;
  WireWriter writer(body);
  writer.integer(static_cast<std::int32_t>(ErrorCode::ok));
  writer.text("it went wrong");
  writer.integer(std::int64_t{0});
  for (int list = 0; list < 2; ++list) writer.integer(std::uint32_t{0});
  EXPECT_EQ(decode_reply(as_bytes(body)).status().code(), ErrorCode::unauthorized);
}

// As its reader would refuse it, and take its writer for a stranger.
TEST(StoreProtocol, OverlongEvidenceIsCut) {
  StoreRequest sent;
  sent.verb = StoreVerb::lost;
  sent.loss = {3, std::string(kMaxEvidenceBytes, 'a') + "b"};
  const std::string frame = encode(sent);
  const auto got = decode_request(body_of(frame));
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got.value().loss.evidence, std::string(kMaxEvidenceBytes, 'a'));
}

TEST(StoreProtocol, FramesComeInPieces) {
  const std::string frame = encode(samples()[0]);
  for (std::size_t size = 0; size < frame.size(); ++size) {
    const auto body = first_frame(as_bytes(std::string_view(frame).substr(0, size)), kMaxRequestBytes);
    ASSERT_TRUE(body.ok());
    EXPECT_FALSE(body.value().has_value()) << size;
  }
}

TEST(StoreProtocol, OversizedFramesAreRefusedByTheirHeader) {
  const auto is_taken = [](std::uint32_t size) {
    std::string header;
    WireWriter(header).integer(size);
    return first_frame(as_bytes(header), kMaxRequestBytes).ok();
  };
  EXPECT_TRUE(is_taken(kMaxRequestBytes));
  EXPECT_FALSE(is_taken(kMaxRequestBytes + 1));
  EXPECT_FALSE(is_taken(0x7fffffff));
}

TEST(StoreProtocol, CutOrLengthenedBodiesAreRefused) {
  for (const StoreRequest& request : samples()) {
    const std::string frame = encode(request);
    const auto body = body_of(frame);
    for (std::size_t size = 0; size < body.size(); ++size)
      EXPECT_FALSE(decode_request(body.first(size)).ok());
    const std::string longer = std::string(as_text(body)) + "x";
    EXPECT_FALSE(decode_request(as_bytes(longer)).ok());
  }
}

TEST(StoreProtocol, CountsAreNotTakenOnTrust) {
  std::string body;
  WireWriter writer(body);
  writer.integer(static_cast<std::uint8_t>(StoreVerb::set));
  writer.integer(std::uint32_t{0xffffffff});
  EXPECT_FALSE(decode_request(as_bytes(body)).ok());
  EXPECT_FALSE(decode_request(as_bytes(std::string(1, '\x63'))).ok());  // No such verb.
}

TEST(StoreProtocol, MutatedMessagesNeverCrash) {
  for (int round = 0; round < 2000; ++round) {
    for (const StoreRequest& request : samples()) {
      std::string bytes = encode(request).substr(kFrameOverhead);
      std::array<std::uint8_t, 4> dice;
      secure_random(dice);
      bytes[(dice[0] + 256u * dice[1]) % bytes.size()] = static_cast<char>(dice[2]);
      const auto decoded = decode_request(as_bytes(bytes));
      // Whatever was accepted is a message: it survives the trip.
      if (decoded.ok()) {
        EXPECT_EQ(encode(decoded.value()).substr(kFrameOverhead), bytes);
      }
      (void)decode_reply(as_bytes(bytes));
    }
  }
}

}  // namespace
}  // namespace lockstep::internal
