#include "tests/lint/names.hpp"

#include <map>
#include <regex>
#include <utility>

namespace lockstep::internal::lint {
namespace {

/// Follows one file's braces.
class Scopes {
 public:
  /// The namespace of what stands at the line's begin; nothing inside of types, functions and anonymous ones.
  std::string here() const {
    std::string names;
    for (const std::string& scope : scopes_) {
      if (scope.empty()) return "";
      names += scope + "::";
    }
    return names;
  }

  void pass(const std::string& code) {
    static const std::regex opened(R"(^(?:inline )?namespace ([\w:]+) \{)");
    std::smatch found;
    const bool opens = code.find("namespace") != std::string::npos && std::regex_search(code, found, opened);
    std::string next = opens ? found.str(1) : "";
    for (const char c : code) {
      if (c == '{') scopes_.push_back(std::exchange(next, ""));
      if (c == '}' && !scopes_.empty()) scopes_.pop_back();
    }
  }

 private:
  std::vector<std::string> scopes_;  ///< Empty text: no namespace with a name.
};

/// The name of the type that a line defines, if it does.
std::string defined_type(const std::string& code) {
  static const std::regex defines(
      R"(^(?:template <.*> )?(?:struct|class|enum class|enum) (?:LOCKSTEP_API |alignas\(.*\) )?(\w+)(?: final)?(?: : .*)? \{)");
  std::smatch found;
  const bool may = code.starts_with("struct") || code.starts_with("class") || code.starts_with("enum") ||
                   code.starts_with("template");
  return may && std::regex_search(code, found, defines) ? found.str(1) : "";
}

}  // namespace

std::vector<std::string> name_findings(const std::vector<SourceFile>& files) {
  std::vector<std::string> findings;
  std::map<std::string, std::string> places;
  for (const SourceFile& file : files) {
    Scopes scopes;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& code = file.lines[i].code;
      const std::string scope = scopes.here(), name = defined_type(code);
      scopes.pass(code);
      if (scope.empty() || name.empty()) continue;
      const auto [first, is_new] = places.emplace(scope + name, location(file, i));
      if (!is_new)
        findings.push_back(location(file, i) + scope + name + " is defined here and at " + first->second);
    }
  }
  return findings;
}

}  // namespace lockstep::internal::lint
