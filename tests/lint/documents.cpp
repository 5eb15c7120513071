#include "tests/lint/documents.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <set>

namespace lockstep::internal::lint {
namespace {

constexpr std::size_t kColumns = 120;

std::string_view without_indent(std::string_view line) {
  return line.substr(std::min(line.find_first_not_of(' '), line.size()));
}

/// Calls `visit(line number, line)` for every line outside the blocks of code.
template <class Visit>
void for_each_line_of_text(const Document& document, Visit visit) {
  bool in_code = false;
  for (std::size_t i = 0; i < document.lines.size(); ++i) {
    if (without_indent(document.lines[i]).starts_with("```"))
      in_code = !in_code;
    else if (!in_code)
      visit(i, std::string_view(document.lines[i]));
  }
}

/// What a link to this heading has behind its '#', by the rule of those who show the pages.
std::string anchor_of(std::string_view heading) {
  std::string anchor;
  for (const char c : heading.substr(heading.find(' ') + 1)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == ' ')
      anchor += '-';
    else if (std::isalnum(byte) != 0 || c == '-' || c == '_')
      anchor += static_cast<char>(std::tolower(byte));
  }
  return anchor;
}

std::set<std::string> anchors_of(const Document& document) {
  std::set<std::string> anchors;
  for_each_line_of_text(document, [&anchors](std::size_t, std::string_view line) {
    if (line.starts_with("#")) anchors.insert(anchor_of(line));
  });
  return anchors;
}

std::vector<std::string> links_in(std::string_view line) {
  std::vector<std::string> links;
  for (std::size_t at = line.find("]("); at != std::string_view::npos; at = line.find("](", at + 1)) {
    const std::size_t end = line.find(')', at);
    if (end != std::string_view::npos) links.emplace_back(line.substr(at + 2, end - at - 2));
  }
  return links;
}

Document read_file(const std::filesystem::path& root, const std::filesystem::path& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return read_document(path.lexically_relative(root), text);
}

/// Why this link leads nowhere, or an empty text.
std::string broken(const std::filesystem::path& root, const Document& from, const std::string& link,
                   const std::vector<Document>& documents) {
  if (link.find("://") != std::string::npos) return {};
  const std::size_t hash = std::min(link.find('#'), link.size());
  const std::string file = link.substr(0, hash);
  const std::filesystem::path at =
      file.empty() ? std::filesystem::path(from.path)
                   : (std::filesystem::path(from.path).parent_path() / file).lexically_normal();
  const auto page = std::find_if(documents.begin(), documents.end(),
                                 [&at](const Document& d) { return d.path == at.string(); });
  if (page == documents.end())
    return std::filesystem::exists(root / at) ? std::string() : at.string() + " does not exist";
  if (hash == link.size() || anchors_of(*page).contains(link.substr(hash + 1))) return {};
  return page->path + " has no heading " + link.substr(hash);
}

std::string place(const Document& document, std::size_t line) {
  return document.path + ":" + std::to_string(line + 1) + ": ";
}

}  // namespace

Document read_document(std::string path, std::string_view text) {
  Document document{std::move(path), {}};
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    document.lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return document;
}

std::vector<Document> read_documents(const std::filesystem::path& root,
                                     const std::vector<std::string>& folders) {
  std::vector<Document> documents;
  const auto take = [&](const std::filesystem::directory_entry& entry) {
    if (entry.path().extension() == ".md") documents.push_back(read_file(root, entry.path()));
  };
  for (const auto& entry : std::filesystem::directory_iterator(root)) take(entry);
  for (const std::string& folder : folders)
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root / folder)) take(entry);
  std::sort(documents.begin(), documents.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
  return documents;
}

std::vector<std::string> link_findings(const std::filesystem::path& root,
                                       const std::vector<Document>& documents) {
  std::vector<std::string> findings;
  for (const Document& document : documents) {
    for_each_line_of_text(document, [&](std::size_t i, std::string_view line) {
      for (const std::string& link : links_in(line)) {
        const std::string why = broken(root, document, link, documents);
        if (!why.empty()) findings.push_back(place(document, i) + why);
      }
    });
  }
  return findings;
}

std::vector<std::string> width_findings(const std::vector<Document>& documents) {
  std::vector<std::string> findings;
  for (const Document& document : documents) {
    bool marked = false;
    for_each_line_of_text(document, [&](std::size_t i, std::string_view line) {
      if (line.starts_with("<!--")) {
        if (line.find(": begin") != std::string_view::npos) marked = true;
        if (line.find(": end") != std::string_view::npos) marked = false;
        return;
      }
      const bool may = marked || without_indent(line).starts_with("|") || !links_in(line).empty();
      if (!may && line.size() > kColumns)
        findings.push_back(place(document, i) + std::to_string(line.size()) + " columns");
    });
  }
  return findings;
}

}  // namespace lockstep::internal::lint
