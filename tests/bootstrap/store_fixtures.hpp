// Stores to test with: each kind under one face.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lib/bootstrap/store.hpp"

namespace lockstep::internal {

/// An upper bound for what happens at once.
inline constexpr std::chrono::milliseconds kSoon{20'000};

/// Opens any number of stores that share their keys.
class StoreMaker {
 public:
  virtual ~StoreMaker() = default;
  virtual std::unique_ptr<Store> open() = 0;
};

std::vector<std::string> store_kinds();
std::unique_ptr<StoreMaker> make_store_maker(const std::string& kind);

}  // namespace lockstep::internal
