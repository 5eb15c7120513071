// The manifest of a checkpoint: what is written is read back, and nothing that is wrong with one is taken on
// trust.
#include "ddp/checkpoint/manifest.hpp"

#include <gtest/gtest.h>

#include <random>

namespace lockstep::internal {
namespace {

Manifest small_manifest() {
  Manifest manifest;
  manifest.generation = 3;
  manifest.info = {.step = 7, .note = "rate 0.1", .world_size = 2};
  manifest.tensors = {
      {"w", DataType::f32, {2, 3}, 6}, {"b", DataType::f16, {4}, 4}, {"none", DataType::f32, {0}, 0}};
  const std::string sha(64, 'a');
  manifest.files = {{"g3-rank0of2.bin", 20, {{"w", 0, 4, 0, sha}, {"b", 0, 2, 16, sha}}},
                    {"g3-rank1of2.bin", 12, {{"w", 4, 2, 0, sha}, {"b", 2, 2, 8, sha}}}};
  return manifest;
}

std::string text_of(const Manifest& manifest) { return to_json(manifest).value(); }

/// The first `from` in the small manifest's text becomes `to`.
std::string edited(const std::string& from, const std::string& to) {
  std::string text = text_of(small_manifest());
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string complaint(const std::string& text) {
  const auto manifest = parse_manifest(text);
  if (manifest.ok()) return "accepted";
  EXPECT_EQ(manifest.status().code(), ErrorCode::invalid_argument);
  return manifest.status().message();
}

TEST(Manifest, IsReadAsItWasWritten) {
  const auto manifest = parse_manifest(text_of(small_manifest()));
  ASSERT_TRUE(manifest.ok()) << manifest.status().message();
  EXPECT_EQ(text_of(manifest.value()), text_of(small_manifest()));
  EXPECT_EQ(manifest.value().info.bytes, 6 * 4 + 4 * 2u);
  EXPECT_EQ(manifest.value().info.note, "rate 0.1");
}

TEST(Manifest, WhatIsWrongIsNamed) {
  struct Case {
    const char *from, *to, *complaint;
  };
  for (const Case& c :
       {Case{"lockstep checkpoint", "other", "is not that of a lockstep checkpoint; check the path"},
        {"\"version\": 1", "\"version\": 2",
         "has version 2, and this library reads version 1; use the lockstep that saved it"},
        {"g3-rank0of2.bin", "../../etc/passwd", "is no name of a data file"},
        {"g3-rank0of2.bin", "/g3-rank0of2.bin", "is no name of a data file"},
        {"\"first\": 0", "\"first\": 18446744073709551615", "lies outside of it"},
        {"\"count\": 4", "\"count\": 18446744073709551615", "lies outside of it"},
        {"\"count\": 4", "\"count\": -4", "count is not a count"},
        {"\"count\": 4", "\"count\": 4.5", "count is not a count"},
        {"\"count\": 4", "\"count\": 3", "lacks element 3 of \"w\" f32 [2, 3]"},
        {"\"count\": 4", "\"count\": 5", "has element 4 of \"w\" f32 [2, 3] twice"},
        {"\"offset\": 16", "\"offset\": 18", "lies past the file's end"},
        {"\"offset\": 16", "\"offset\": 18446744073709551615", "lies past the file's end"},
        {"\"tensor\": \"w\"", "\"tensor\": \"x\"", "belongs to no tensor"},
        {"\"f16\"", "\"f17\"", "unknown type \"f17\""},
        {"\"name\": \"b\"", "\"name\": \"w\"", "has the tensor \"w\" twice"},
        {"aaaa", "aaa", "has no SHA-256"},
        {"\"world_size\": 2", "\"world_size\": 0", "impossible world size"},
        {"\"world_size\": 2", "\"world_size\": 1073741824", "impossible world size"},
        {"\"files\"", "\"fils\"", "cannot be read"},
        {"{", "", "cannot be read"}}) {
    EXPECT_NE(complaint(edited(c.from, c.to)).find(c.complaint), std::string::npos)
        << c.from << " -> " << c.to << ": " << complaint(edited(c.from, c.to));
  }
}

/// It would be read as one.
TEST(Manifest, APieceThatIsTooLargeIsRefused) {
  Manifest manifest = small_manifest();
  for (const std::size_t more : {0u, 1u}) {
    const std::size_t count = kMaxPieceBytes / sizeof(float) + more;
    manifest.tensors = {{"w", DataType::f32, {count}, count}};
    manifest.files = {{"g3-rank0of2.bin", count * sizeof(float), {{"w", 0, count, 0, std::string(64, 'a')}}}};
    const std::string found = complaint(text_of(manifest));
    EXPECT_NE(found.find(more > 0 ? "is too large" : "accepted"), std::string::npos) << found;
  }
}

TEST(Manifest, ShapesThatOverflowAreRefused) {
  EXPECT_NE(complaint(edited("3\n", "6148914691236517205\n")), "accepted");
  EXPECT_NE(complaint(edited("3\n", "-3\n")), "accepted");
}

TEST(Manifest, RandomDamageNeverPassesUnlessHarmless) {
  const std::string whole = text_of(small_manifest());
  std::mt19937 random(1);
  for (int round = 0; round < 3'000; ++round) {
    std::string text = whole;
    for (unsigned k = 0; k < 1 + random() % 3; ++k)
      text[random() % text.size()] = static_cast<char>(random());
    if (random() % 4 == 0) text.resize(random() % text.size());
    const auto manifest = parse_manifest(text);
    if (!manifest.ok()) continue;
    EXPECT_TRUE(check_cover(manifest.value()).ok());  // What was accepted is at least whole.
  }
}

TEST(Manifest, NamesOfDataFilesAreRecognised) {
  std::uint64_t generation = 0;
  EXPECT_TRUE(is_data_file_name(data_file_name(42, 3, 8), generation));
  EXPECT_EQ(generation, 42u);
  for (const char* other : {"", "manifest.json", "g1-rank0of2.bin.part", "g-rank0of2.bin", "g1-rank-1of2.bin",
                            "g99999999999999999999-rank0of1.bin", "xg1-rank0of2.bin", "g1/rank0of2.bin"}) {
    EXPECT_FALSE(is_data_file_name(other, generation)) << other;
  }
}

}  // namespace
}  // namespace lockstep::internal
