#include "tools/run/line_splitter.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::run {
namespace {

/// What comes of `pieces`: "L:text" for lines, "P:text" for progress.
std::vector<std::string> split(const std::vector<std::string>& pieces) {
  std::vector<std::string> seen;
  LineSplitter splitter({[&](std::string_view text) { seen.push_back("L:" + std::string(text)); },
                         [&](std::string_view text) { seen.push_back("P:" + std::string(text)); }});
  for (const std::string& piece : pieces) splitter.take(piece);
  splitter.finish();
  return seen;
}

using Seen = std::vector<std::string>;

TEST(LineSplitter, LinesInAnyPieces) {
  EXPECT_EQ(split({"a\nb", "b\n", "\n"}), (Seen{"L:a", "L:bb", "L:"}));
  EXPECT_EQ(split({}), Seen{});
}

TEST(LineSplitter, WindowsLineEndsAreLineEnds) { EXPECT_EQ(split({"a\r", "\nb\r\n"}), (Seen{"L:a", "L:b"})); }

TEST(LineSplitter, AnUnfinishedLineComesAtTheEnd) { EXPECT_EQ(split({"a\nb"}), (Seen{"L:a", "L:b"})); }

TEST(LineSplitter, ReturnAfterTheBar) {
  EXPECT_EQ(split({"10\r20\r", "30\n"}), (Seen{"P:10", "P:20", "L:30"}));
  EXPECT_EQ(split({"10\r20\r"}), (Seen{"P:10", "L:20"}));
}

TEST(LineSplitter, ReturnBeforeTheBarIsShownAtOnce) {
  EXPECT_EQ(split({"\r10", "\r20", "\r30\n"}), (Seen{"P:10", "P:20", "P:20", "L:30"}));
}

TEST(LineSplitter, ABarWithNothingAfterItIsTheLine) {
  EXPECT_EQ(split({"99\r100\r\n"}), (Seen{"P:99", "L:100"}));
}

TEST(LineSplitter, EndlessLinesAreCut) {
  const auto seen = split({std::string(LineSplitter::kMaxLine + 5, 'x')});
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0].size(), LineSplitter::kMaxLine + 2);
  EXPECT_EQ(seen[1], "L:xxxxx");
}

TEST(LineSplitter, TheLongestLineIsOneLine) {
  const std::string longest(LineSplitter::kMaxLine, 'x');
  for (const char* end : {"\n", "\r\n", ""}) EXPECT_EQ(split({longest + end}), Seen{"L:" + longest});
  EXPECT_EQ(split({longest + "x\n"}), (Seen{"L:" + longest, "L:x"}));
}

}  // namespace
}  // namespace lockstep::run
