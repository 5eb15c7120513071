// The library's hooks, for tests of every one.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <vector>

#include "ddp/hooks/hook_names.hpp"

namespace lockstep::testing {

/// Names for hook_by_name(), all of which make a hook.
inline std::vector<std::string_view> every_hook() {
  auto names = internal::hook_names();
  names.erase(std::remove(names.begin(), names.end(), "none"), names.end());
  return names;
}

/// A table whose rows have names and settings of their own knows each of them.
template <typename Cases>
void expect_row_of_every_hook(const Cases& cases) {
  for (const std::string_view name : every_hook()) {
    EXPECT_TRUE(std::any_of(std::begin(cases), std::end(cases), [&](const auto& row) {
      return row.name == name;
    })) << name;
  }
}

}  // namespace lockstep::testing
