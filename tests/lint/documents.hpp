// The documents: links that lead nowhere, and lines that nobody wants to read in an editor.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::internal::lint {

/// A page of Markdown, as the lints read it.
struct Document {
  std::string path;  ///< From the root, "docs/ddp.md".
  std::vector<std::string> lines;
};

Document read_document(std::string path, std::string_view text);

/// The Markdown files of `root` itself and below `folders` of it, sorted by path.
std::vector<Document> read_documents(const std::filesystem::path& root,
                                     const std::vector<std::string>& folders);

/// One message for every relative link to a file that is not below `root`, or to a heading that its page has
/// not.
std::vector<std::string> link_findings(const std::filesystem::path& root,
                                       const std::vector<Document>& documents);

/// One message for every line of more than 120 columns. Code, tables, lines with a link and what a tool wrote
/// between its marks may be longer.
std::vector<std::string> width_findings(const std::vector<Document>& documents);

}  // namespace lockstep::internal::lint
