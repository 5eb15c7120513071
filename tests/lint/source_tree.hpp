// The project's own C++ files, as the lints read them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::internal::lint {

struct Line {
  std::string code;     ///< Without comments; string literals keep their quotes and lose their insides.
  std::string strings;  ///< Without comments, with the strings.
};

struct SourceFile {
  std::string path;  ///< From the root, "lib/base/env.cpp".
  std::vector<Line> lines;
};

/// Splits a file into lines and takes the comments out. Raw string literals are not understood beyond their
/// line.
SourceFile read_source(std::string path, std::string_view text);

/// Every .hpp, .cpp and .h file below `folders` of `root`, sorted by path. Folders that do not exist are
/// passed over.
std::vector<SourceFile> read_tree(const std::filesystem::path& root, const std::vector<std::string>& folders);

/// Where `word` stands in `code` as a whole identifier, or npos.
std::size_t find_word(std::string_view code, std::string_view word);

/// "lib/net/fd.cpp:12: ", for messages; lines count from 0 here and from 1 in the text.
std::string location(const SourceFile& file, std::size_t line);

}  // namespace lockstep::internal::lint
