// The lints over the tree, and over planted violations: a lint that finds nothing must have been able to.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "lib/base/config.hpp"
#include "tests/lint/ambient.hpp"
#include "tests/lint/documents.hpp"
#include "tests/lint/floors.hpp"
#include "tests/lint/names.hpp"
#include "tests/lint/source_tree.hpp"

namespace lockstep::internal::lint {
namespace {

using Findings = std::vector<std::string>;

std::string lines(const Findings& findings) {
  std::string text;
  for (const std::string& finding : findings) text += "\n" + finding;
  return text;
}

TEST(Ambient, NoClockSleepRandomnessOrEnvironmentOutsideItsPlace) {
  const auto files = read_tree(LOCKSTEP_SOURCE_DIR, {"lib", "transports", "collectives", "ddp"});
  ASSERT_GT(files.size(), 50u);
  const Findings findings = ambient_findings(files);
  EXPECT_TRUE(findings.empty()) << lines(findings);
}

TEST(Ambient, FindsWhatIsPlanted) {
  for (const char* planted :
       {"auto t = std::chrono::steady_clock::now();", "clock_gettime(CLOCK_MONOTONIC, &t);", "usleep(10);",
        "std::this_thread::sleep_for(pause);", "sleep_for(pause);", "std::random_device device;",
        "int x = rand();", "const char* home = std::getenv(\"HOME\");", "f(\"// no comment\"); usleep(1);",
        "/* a */ usleep(1);"}) {
    EXPECT_EQ(ambient_findings({read_source("transports/tcp/link.cpp", planted)}).size(), 1u) << planted;
  }
}

TEST(Ambient, PassesWhatOnlyLooksAlike) {
  for (const char* harmless :
       {"// never usleep here", "/* rand()\n usleep(1) */ int x = 1'000;", "log(\"getenv failed\");",
        "int operand(int);", "char c = '\"'; // usleep(1)", "grand(1);"}) {
    const Findings findings = ambient_findings({read_source("transports/tcp/link.cpp", harmless)});
    EXPECT_TRUE(findings.empty()) << harmless << lines(findings);
  }
  EXPECT_TRUE(ambient_findings({read_source("lib/base/env.cpp", "nanosleep(&t, &t);")}).empty());
  EXPECT_TRUE(ambient_findings({read_source("lib/bootstrap/tcp_store.cpp", "sleep_for(pause);")}).empty());
}

TEST(Names, ANamespaceHasATypeOnce) {
  const auto files = read_tree(LOCKSTEP_SOURCE_DIR, {"include", "lib", "transports", "collectives", "ddp"});
  ASSERT_GT(files.size(), 100u);
  const Findings findings = name_findings(files);
  EXPECT_TRUE(findings.empty()) << lines(findings);
}

TEST(Names, FindsWhatIsPlanted) {
  const SourceFile first = read_source("a.hpp", "namespace one::two {\nstruct Call {\n  int x;\n};\n}\n");
  for (const char* planted : {"struct Call {\n", "class Call final : public Base {\n",
                              "template <class T> class Call {\n", "enum class Call : int { none };\n"}) {
    const auto second =
        read_source("b.cpp", "namespace one::two {\nint f() { return 1; }\n" + std::string(planted));
    EXPECT_EQ(name_findings({first, second}).size(), 1u) << planted;
  }
}

TEST(Names, PassesWhatOnlyLooksAlike) {
  const SourceFile first = read_source("a.hpp", "namespace one::two {\nstruct Call {\n  int x;\n};\n}\n");
  for (const char* harmless : {"namespace one {\nstruct Call {};\n}", "namespace one::two {\nstruct Call;\n}",
                               "namespace one::two {\nnamespace {\nstruct Call {};\n}\n}",
                               "namespace one::two {\n// struct Call {\n}",
                               "namespace one::two {\nstruct Other {\nstruct Call {};\n};\n}"}) {
    const Findings findings = name_findings({first, read_source("b.cpp", harmless)});
    EXPECT_TRUE(findings.empty()) << harmless << lines(findings);
  }
}

TEST(Floors, IncludesGoDownOnly) {
  const auto files = read_tree(LOCKSTEP_SOURCE_DIR, {"include", "lib", "transports", "collectives", "ddp",
                                                     "bench", "examples", "integrations"});
  ASSERT_GT(files.size(), 100u);
  const Findings findings = floor_findings(files);
  EXPECT_TRUE(findings.empty()) << lines(findings);
}

/// What the floors lint says about one file with one include, in a tree that holds the included file.
Findings findings_of(const std::string& path, const std::string& included, const std::string& name) {
  Findings findings = floor_findings(
      {read_source(path, "#pragma once\n#include \"" + name + "\"\n"), read_source(included, "")});
  std::erase_if(findings, [&path](const std::string& text) { return !text.starts_with(path); });
  return findings;
}

TEST(Floors, FindsWhatIsPlanted) {
  struct Planted {
    const char* path;
    const char* included;
  };
  for (const Planted& planted : {Planted{"lib/base/env.cpp", "lib/net/fd.hpp"},
                                 {"lib/net/fd.cpp", "transports/transport.hpp"},
                                 {"lib/reduce/copy.cpp", "lib/memory/segment.hpp"},
                                 {"transports/shm/ring.cpp", "transports/tcp/link.hpp"},
                                 {"transports/transport.hpp", "transports/tcp/link.hpp"},
                                 {"transports/tcp/link.cpp", "collectives/programs/program.hpp"},
                                 {"collectives/programs/ring.cpp", "transports/transport.hpp"},
                                 {"collectives/programs/ring.cpp", "collectives/engine/engine.hpp"},
                                 {"collectives/engine/engine.cpp", "transports/tcp/link.hpp"},
                                 {"collectives/engine/engine.cpp", "collectives/communicator_impl.hpp"},
                                 {"collectives/communicator.cpp", "ddp/reducer.hpp"},
                                 {"bench/main.cpp", "lib/base/status.hpp"},
                                 {"examples/digits/net.cpp", "lib/base/status.hpp"}}) {
    const Findings findings = findings_of(planted.path, planted.included, planted.included);
    ASSERT_EQ(findings.size(), 1u) << planted.path;
    EXPECT_TRUE(findings[0].starts_with(std::string(planted.path) + ":2: ")) << findings[0];
  }
  EXPECT_EQ(findings_of("lib/base/env.cpp", "lib/net/fd.hpp", "../net/fd.hpp").size(), 1u)
      << "a way around the root";
  EXPECT_EQ(findings_of("attic/old.cpp", "lib/net/fd.hpp", "lib/net/fd.hpp").size(), 1u)
      << "a folder of no floor";
}

TEST(Floors, PassesWhatGoesDown) {
  EXPECT_TRUE(findings_of("lib/net/fd.cpp", "lib/base/status.hpp", "lib/base/status.hpp").empty());
  EXPECT_TRUE(
      findings_of("examples/digits/main.cpp", "include/lockstep/ddp.hpp", "lockstep/ddp.hpp").empty());
  EXPECT_TRUE(
      findings_of("transports/shm/ring.cpp", "transports/transport.hpp", "transports/transport.hpp").empty());
  EXPECT_TRUE(
      findings_of("collectives/communicator.cpp", "transports/tcp/link.hpp", "transports/tcp/link.hpp")
          .empty());
  EXPECT_TRUE(findings_of("bench/main.cpp", "bench/options.hpp", "options.hpp").empty());
}

std::vector<Document> all_documents() {
  return read_documents(LOCKSTEP_SOURCE_DIR, {"docs", "bench", "examples", "integrations", "deploy"});
}

TEST(Documents, EveryLinkLeadsToAFileOrAHeading) {
  const auto documents = all_documents();
  ASSERT_GT(documents.size(), 15u);
  const Findings findings = link_findings(LOCKSTEP_SOURCE_DIR, documents);
  EXPECT_TRUE(findings.empty()) << lines(findings);
}

TEST(Documents, LinesAreNoWiderThan120Columns) {
  const Findings findings = width_findings(all_documents());
  EXPECT_TRUE(findings.empty()) << lines(findings);
}

TEST(Documents, FindsLinksThatLeadNowhere) {
  for (const char* planted :
       {"see [a](b.md#what-may-fail)", "see [a](#below)", "see [a](c.md)", "![plot](plots/none-such.svg)",
        "| cell | [a](b.md#what) |", "[good](b.md), [bad](../docs/none-such.md)"}) {
    const std::vector<Document> documents = {
        read_document("docs/a.md", planted),
        read_document("docs/b.md", "## What may block\n```sh\n# What may fail\n```\n")};
    EXPECT_EQ(link_findings(LOCKSTEP_SOURCE_DIR, documents).size(), 1u) << planted;
  }
}

TEST(Documents, PassesLinksThatLeadSomewhere) {
  for (const char* harmless :
       {"see [a](b.md#what-may-block)", "see [a](#limits-and-what-is-unmeasured)",
        "[b](../README.md#into-an-existing-trainer)", "[c](https://example.com/none#such)",
        "[header](../include/lockstep/types.hpp)", "```cpp\nparts[0](none.md);\n```"}) {
    const std::vector<Document> documents = {
        read_document("README.md", "### Into an existing trainer\n"),
        read_document("docs/a.md", std::string(harmless) + "\n## Limits, and what is unmeasured\n"),
        read_document("docs/b.md", "# Page\n## What may block\n")};
    const Findings findings = link_findings(LOCKSTEP_SOURCE_DIR, documents);
    EXPECT_TRUE(findings.empty()) << harmless << lines(findings);
  }
}

TEST(Documents, OnlyProseThatIsTooWideIsFound) {
  const std::string wide(121, 'x');
  EXPECT_EQ(width_findings({read_document("a.md", wide)}).size(), 1u);
  EXPECT_EQ(width_findings({read_document("a.md", "<!-- t: begin -->\n<!-- t: end -->\n" + wide)}).size(),
            1u);
  for (const std::string& may : {std::string(120, 'x'), "| " + wide + " |", "```\n" + wide + "\n```",
                                 "[" + wide + "](b.md)", "<!-- t: begin -->\n" + wide + "\n<!-- t: end -->"})
    EXPECT_TRUE(width_findings({read_document("a.md", may)}).empty()) << may;
}

const Variable* find_variable(std::string_view name) {
  const auto all = variables();
  const auto found =
      std::find_if(all.begin(), all.end(), [name](const Variable& v) { return v.name == name; });
  return found == all.end() ? nullptr : &*found;
}

/// The name in `config_...("NAME")` on this line, if there is one.
std::optional<std::string> variable_read(const std::string& line, const std::string& reader) {
  const std::string call = reader + "(\"";
  const std::size_t at = line.find(call);
  if (at == std::string::npos) return std::nullopt;
  const std::size_t start = at + call.size();
  return line.substr(start, line.find('"', start) - start);
}

TEST(Variables, EveryOneThatIsReadIsInTheTableWithTheKindItIsReadAs) {
  const std::vector<std::pair<std::string, std::optional<VariableKind>>> readers = {
      {"config_text", VariableKind::text},
      {"config_text_or", VariableKind::text},
      {"config_integer", VariableKind::integer},
      {"config_flag", VariableKind::flag},
      {"config_bytes", VariableKind::bytes},
      {"config_milliseconds", VariableKind::duration},
      {"config_is_set", std::nullopt}};
  for (const SourceFile& file :
       read_tree(LOCKSTEP_SOURCE_DIR, {"lib", "transports", "collectives", "ddp", "tools"})) {
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      for (const auto& [reader, kind] : readers) {
        const std::optional<std::string> name = variable_read(file.lines[i].strings, reader);
        if (!name) continue;
        const Variable* variable = find_variable(*name);
        ASSERT_NE(variable, nullptr) << location(file, i) << *name << " is not in lib/base/config.cpp";
        EXPECT_TRUE(!kind || variable->kind == *kind) << location(file, i) << *name << " is not of this kind";
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::internal::lint
