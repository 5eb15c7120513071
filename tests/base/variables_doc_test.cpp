// docs/variables.md is what the registry says. `UPDATE_DOCS=1 variables_doc_test` writes it anew.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "lib/base/config.hpp"

namespace lockstep::internal {
namespace {

constexpr const char* kPage = LOCKSTEP_SOURCE_DIR "/docs/variables.md";

TEST(VariablesDoc, EqualsTheRegistry) {
  if (std::getenv("UPDATE_DOCS") != nullptr) std::ofstream(kPage) << variables_markdown();
  std::stringstream page;
  page << std::ifstream(kPage).rdbuf();
  EXPECT_EQ(page.str(), variables_markdown())
      << "docs/variables.md is out of date: run UPDATE_DOCS=1 build/release/bin/variables_doc_test";
}

}  // namespace
}  // namespace lockstep::internal
