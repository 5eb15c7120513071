// Parsing of numbers with units, edit distance and hashing.
#include <gtest/gtest.h>

#include <array>

#include "lib/base/hash.hpp"
#include "lib/base/nearest.hpp"
#include "lib/base/parse.hpp"

namespace lockstep::internal {
namespace {

TEST(Parse, Bytes) {
  EXPECT_EQ(parse_bytes("0"), 0u);
  EXPECT_EQ(parse_bytes("512"), 512u);
  EXPECT_EQ(parse_bytes("64K"), 65536u);
  EXPECT_EQ(parse_bytes("16k"), 16384u);
  EXPECT_EQ(parse_bytes("1M"), 1u << 20);
  EXPECT_EQ(parse_bytes("2G"), 2ull << 30);
  EXPECT_EQ(parse_bytes("3T"), 3ull << 40);
  for (const char* bad : {"", "K", "-1", "1.5M", "1 M", "1MB", "99999999999999999999", "99999999T"}) {
    EXPECT_EQ(parse_bytes(bad), std::nullopt) << bad;
  }
}

TEST(Parse, Durations) {
  EXPECT_EQ(parse_milliseconds("0"), 0);
  EXPECT_EQ(parse_milliseconds("500ms"), 500);
  EXPECT_EQ(parse_milliseconds("30s"), 30'000);
  EXPECT_EQ(parse_milliseconds("5m"), 300'000);
  EXPECT_EQ(parse_milliseconds("2h"), 7'200'000);
  for (const char* bad :
       {"", "s", "30", "-5s", "1d", "5 s", "9223372036854775808ms", "9223372036854775807s"}) {
    EXPECT_EQ(parse_milliseconds(bad), std::nullopt) << bad;
  }
}

TEST(Parse, IntegersAndFlags) {
  EXPECT_EQ(parse_integer("-42"), -42);
  EXPECT_EQ(parse_integer("9223372036854775807"), INT64_MAX);
  for (const char* bad : {"", "1x", " 1", "0x10", "9223372036854775808"})
    EXPECT_EQ(parse_integer(bad), std::nullopt);
  for (const char* yes : {"1", "true", "yes", "on"}) EXPECT_EQ(parse_flag(yes), true);
  for (const char* no : {"0", "false", "no", "off"}) EXPECT_EQ(parse_flag(no), false);
  for (const char* bad : {"", "2", "maybe"}) EXPECT_EQ(parse_flag(bad), std::nullopt);
}

TEST(Nearest, EditDistance) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("ring", "ring"), 0u);
  EXPECT_EQ(edit_distance("", "ring"), 4u);
  EXPECT_EQ(edit_distance("ring", ""), 4u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("flaw", "lawn"), 2u);
}

TEST(Nearest, PicksTheClosestAndTheFirstOfEquals) {
  constexpr std::array<std::string_view, 3> names{"ring", "bruck", "binomial"};
  EXPECT_EQ(nearest("rings", names), "ring");
  EXPECT_EQ(nearest("brukc", names), "bruck");
  EXPECT_EQ(nearest("", names), "ring");
  EXPECT_EQ(nearest("ring", {}), "");
}

TEST(Hash, MatchesThePublishedVectors) {
  EXPECT_EQ(fnv1a(""), 0xcbf29ce484222325u);
  EXPECT_EQ(fnv1a("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(fnv1a("foobar"), 0x85944171f73967e8u);
}

TEST(Hash, ContinuesAndSeparates) {
  EXPECT_EQ(fnv1a("bar", fnv1a("foo")), fnv1a("foobar"));
  EXPECT_EQ(hash_combine(kFnvOffset, 0x0807060504030201), fnv1a("\x01\x02\x03\x04\x05\x06\x07\x08"));
  EXPECT_NE(hash_combine(hash_combine(kFnvOffset, 1), 2), hash_combine(hash_combine(kFnvOffset, 2), 1));
}

}  // namespace
}  // namespace lockstep::internal
