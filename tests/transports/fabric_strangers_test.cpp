// What no lockstep says over a fabric: refused by name, whatever it is.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "tests/transports/link_fixtures.hpp"
#include "tests/transports/memory_fabric.hpp"

namespace lockstep::internal {
namespace {

using testing::FabricPair;
using testing::message;
using testing::Outgoing;
using testing::push;

/// As links begin their messages.
struct Note {
  std::uint8_t kind = 1;  // A piece; 2: a landing, 3: credits, 4: a farewell.
  std::uint8_t credits = 0;
  std::uint16_t zero = 0;
  std::uint32_t bytes = 0;
  std::uint64_t also_zero = 0;
};

std::vector<std::byte> bytes_of(const Note& note, std::vector<std::byte> body = {}) {
  const auto head = std::as_bytes(std::span(&note, 1));
  body.insert(body.begin(), head.begin(), head.end());
  return body;
}

std::vector<std::byte> offer_of(std::uint64_t bytes, std::uint64_t key_bytes, std::size_t key_there = 0) {
  const std::uint64_t words[] = {0, bytes, 0, key_bytes};
  const auto raw = std::as_bytes(std::span(words));
  std::vector<std::byte> body(raw.begin(), raw.end());
  body.resize(body.size() + key_there);
  Note note;
  note.kind = 2;
  note.bytes = static_cast<std::uint32_t>(body.size());
  return bytes_of(note, std::move(body));
}

TEST(FabricLink, RefusesMessagesThatAreNone) {
  Note unknown, longer, generous;
  unknown.kind = 9;
  longer.bytes = 1;
  generous.kind = 3;
  generous.credits = kPieceCredits + 1;
  const std::vector<std::vector<std::byte>> hostile{
      {},                                                   // Not even a note.
      std::vector<std::byte>(15),                           // Less than one.
      bytes_of(unknown),                                    // Of no kind.
      bytes_of(longer),                                     // Shorter than it says.
      bytes_of({}, {std::byte{}}),                          // Longer than it says.
      bytes_of(generous),                                   // Credits for what was never sent.
      offer_of(100, 1),                                     // A landing whose key is not there.
      offer_of(100, kMostKeyBytes + 1, kMostKeyBytes + 1),  // Or is longer than any.
  };
  for (std::size_t which = 0; which < hostile.size(); ++which) {
    FabricPair pair;
    ASSERT_TRUE(*pair.wire_a->send(hostile[which], {}));
    for (int attempt = 0; attempt < 2; ++attempt) {
      const auto head = pair.b->peek();
      ASSERT_FALSE(head.ok()) << which;
      EXPECT_EQ(head.status().code(), ErrorCode::internal);
      EXPECT_EQ(head.status().culprit(), 0);
    }
    Outgoing out = message(1, 1);
    EXPECT_FALSE(push(*pair.b, out).ok());
  }
}

TEST(FabricLink, RefusesMoreLandingsThanAPeerMayHaveOpen) {
  FabricPair pair;
  for (std::size_t number = 0; number <= kLandings; ++number) {
    EXPECT_TRUE(pair.b->peek().ok()) << number;
    ASSERT_TRUE(*pair.wire_a->send(offer_of(100, 0), {}));
  }
  EXPECT_EQ(pair.b->peek().status().code(), ErrorCode::internal);
}

TEST(FabricLink, RefusesBytesThatAreNoFrame) {
  FabricPair pair;
  Note note;
  note.bytes = 100;
  ASSERT_TRUE(*pair.wire_a->send(bytes_of(note, std::vector<std::byte>(100)), {}));
  for (int attempt = 0; attempt < 2; ++attempt)
    EXPECT_EQ(pair.b->peek().status().code(), ErrorCode::internal);
}

// No more of that element can come: the next piece begins another.
TEST(FabricLink, RefusesAPieceThatEndsWithinAnElement) {
  for (const std::size_t here : {0, 4, 20}) {
    FabricPair pair;
    std::vector<std::byte> frame(sizeof(FrameHeader) + here);
    const FrameHeader header = message(32, 1).header;
    std::memcpy(frame.data(), &header, sizeof header);
    Note note;
    note.bytes = static_cast<std::uint32_t>(frame.size());
    ASSERT_TRUE(*pair.wire_a->send(bytes_of(note, frame), {}));
    if (here == 0) {
      EXPECT_TRUE(*pair.wire_a->send(bytes_of({}), {}));
    }
    ASSERT_NE(pair.b->peek().value(), nullptr);
    if (here == 20) {
      EXPECT_EQ(pair.b->borrow(16, 32).value().size(), 16u);
      pair.b->release(16);
    }
    for (int attempt = 0; attempt < 2; ++attempt) {
      const auto lent = pair.b->borrow(16, 32);
      ASSERT_FALSE(lent.ok()) << here;
      EXPECT_EQ(lent.status().code(), ErrorCode::internal);
      EXPECT_EQ(lent.status().culprit(), 0);
    }
  }
}

TEST(FabricLink, GivesNoMoreThanAMessageHas) {
  FabricPair pair;
  Outgoing out = message(1 << 20, 1);
  ASSERT_FALSE(*push(*pair.a, out));
  ASSERT_TRUE(*pair.wire_b->send(offer_of((1 << 20) + 1, 0), {}));
  const auto sent = push(*pair.a, out);
  ASSERT_FALSE(sent.ok());
  EXPECT_NE(sent.status().message().find("asked for more than a message has"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::internal
