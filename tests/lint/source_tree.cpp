#include "tests/lint/source_tree.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>

namespace lockstep::internal::lint {
namespace {

bool is_word_character(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Takes comments and string insides out, character by character; only block comments reach past a line's
/// end.
class Scanner {
 public:
  Line scan(std::string_view text) {
    Line line;
    quote_ = '\0';
    for (std::size_t i = 0; i < text.size(); ++i) {
      const std::string_view two = text.substr(i, 2);
      if (in_comment_) {
        if (two == "*/") in_comment_ = false, ++i;
      } else if (quote_ != '\0') {
        line.strings += text[i];
        if (text[i] == '\\' && i + 1 < text.size()) {
          line.strings += text[++i];
        } else if (text[i] == quote_) {
          line.code += text[i];
          quote_ = '\0';
        }
      } else if (two == "//") {
        break;
      } else if (two == "/*") {
        in_comment_ = true, ++i;
      } else {
        // An apostrophe inside a word separates digits.
        const bool separates = text[i] == '\'' && i > 0 && is_word_character(text[i - 1]);
        if (text[i] == '"' || (text[i] == '\'' && !separates)) quote_ = text[i];
        line.code += text[i];
        line.strings += text[i];
      }
    }
    return line;
  }

 private:
  bool in_comment_ = false;
  char quote_ = '\0';
};

std::string read_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

SourceFile read_source(std::string path, std::string_view text) {
  SourceFile file{std::move(path), {}};
  Scanner scanner;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    file.lines.push_back(scanner.scan(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return file;
}

std::vector<SourceFile> read_tree(const std::filesystem::path& root,
                                  const std::vector<std::string>& folders) {
  std::vector<SourceFile> files;
  for (const std::string& folder : folders) {
    if (!std::filesystem::exists(root / folder)) continue;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension();
      if (extension != ".hpp" && extension != ".cpp" && extension != ".h" && extension != ".cu" &&
          extension != ".cuh") {
        continue;
      }
      files.push_back(read_source(entry.path().lexically_relative(root), read_text(entry.path())));
    }
  }
  std::sort(files.begin(), files.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return files;
}

std::size_t find_word(std::string_view code, std::string_view word) {
  for (std::size_t at = code.find(word); at != std::string_view::npos; at = code.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    const bool starts = at == 0 || !is_word_character(code[at - 1]);
    if (starts && (end == code.size() || !is_word_character(code[end]))) return at;
  }
  return std::string_view::npos;
}

std::string location(const SourceFile& file, std::size_t line) {
  return file.path + ":" + std::to_string(line + 1) + ": ";
}

}  // namespace lockstep::internal::lint
