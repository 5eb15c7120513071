#include "tests/support/count_option.hpp"

#include <gtest/gtest.h>

#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string_view>

namespace {

std::optional<std::uint64_t> g_operations;

bool take_option(int argc, char** argv) {
  if (argc == 1) return true;
  if (argc != 3 || std::strcmp(argv[1], "--operations") != 0) return false;
  const std::string_view text = argv[2];
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
  g_operations = value;
  return error == std::errc() && end == text.end();
}

}  // namespace

namespace lockstep::testing {

std::uint64_t count_option(std::uint64_t by_default) { return g_operations.value_or(by_default); }

}  // namespace lockstep::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (!take_option(argc, argv)) {
    std::fprintf(stderr, "usage: %s [--operations N] [--gtest_...]\n", argv[0]);
    return 2;
  }
  return RUN_ALL_TESTS();
}
