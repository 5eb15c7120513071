#include "tests/engine/count_option.hpp"

#include <gtest/gtest.h>

#include <charconv>
#include <cstdio>
#include <map>
#include <string_view>

namespace {

std::map<std::string, std::uint64_t> g_counts;

bool take_option(const std::string& name, std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), value);
  g_counts[name] = value;
  const bool known = name == "--operations" || name == "--rounds" || name == "--seed";
  return known && error == std::errc() && end == text.end();
}

bool take_options(int argc, char** argv) {
  bool understood = argc % 2 == 1;
  for (int i = 1; i + 1 < argc; i += 2) understood = understood && take_option(argv[i], argv[i + 1]);
  return understood;
}

}  // namespace

namespace lockstep::testing {

std::uint64_t count_option(const std::string& name, std::uint64_t by_default) {
  const auto found = g_counts.find(name);
  return found != g_counts.end() ? found->second : by_default;
}

}  // namespace lockstep::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (!take_options(argc, argv)) {
    std::fprintf(stderr, "usage: %s [--operations N] [--rounds N] [--seed N] [--gtest_...]\n", argv[0]);
    return 2;
  }
  return RUN_ALL_TESTS();
}
