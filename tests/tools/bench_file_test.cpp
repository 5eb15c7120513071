// The files that benchmarks leave.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "bench/json_file.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep::bench {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(BenchFile, IsReplacedAndLeavesNothingBeside) {
  const internal::TemporaryDirectory directory;
  const std::string path = directory.path() + "/tuning.json";
  for (const char* text : {"first", "second"}) {
    check_replace(path);
    replace_file(path, text);
    EXPECT_EQ(content_of(path), text);
    EXPECT_FALSE(std::filesystem::exists(path + ".new"));
  }
}

// /dev/null above all, which root could replace. Here a link to it would be replaced.
TEST(BenchFile, ADeviceIsWrittenToAndStays) {
  const internal::TemporaryDirectory directory;
  const std::string path = directory.path() + "/nowhere";
  std::filesystem::create_symlink("/dev/null", path);
  check_replace(path);
  replace_file(path, "nothing");
  EXPECT_TRUE(std::filesystem::is_symlink(path));
}

// Before a long measurement, not after it.
TEST(BenchFile, WhatCannotBeReplacedIsRefusedBefore) {
  const internal::TemporaryDirectory directory;
  const std::string path = directory.path() + "/tuning.json";
  std::filesystem::create_directory(path + ".new");
  EXPECT_THROW(check_replace(path), std::runtime_error);
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace lockstep::bench
