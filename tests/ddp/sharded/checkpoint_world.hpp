// A directory for checkpoints, and a model to save there.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "lockstep/ddp.hpp"
#include "lockstep/ddp/checkpoint.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep::testing {

/// A directory of the test's own, gone afterwards.
class Directory {
 public:
  /// Where checkpoints go: made by the first save.
  std::string checkpoint() const { return directory_.path() + "/last"; }
  std::string file(const std::string& name) const { return checkpoint() + "/" + name; }
  /// Of the checkpoint, without the lock of those who save.
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(checkpoint())) {
      if (entry.path().filename() != "save.lock") names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  const internal::TemporaryDirectory directory_;
};

inline constexpr std::size_t kRows = 30;

/// A replicated model: a large tensor, a small one, a scalar and an empty one.
struct Net {
  explicit Net(std::size_t row_count = kRows) : rows(row_count) {}
  std::size_t rows;
  std::vector<float> large = std::vector<float>(rows * 1'000);
  std::vector<double> small = std::vector<double>(7);
  std::vector<float> scalar = std::vector<float>(1);
  std::vector<Parameter> list{{"large", DataType::f32, {rows, 1000}, large.data(), nullptr},
                              {"small", DataType::f64, {7}, small.data(), nullptr},
                              {"scalar", DataType::f32, {}, scalar.data(), nullptr},
                              {"empty", DataType::f32, {0, 3}, nullptr, nullptr}};
  void fill(float from) {
    std::iota(large.begin(), large.end(), from);
    std::iota(small.begin(), small.end(), static_cast<double>(from));
    scalar[0] = from;
  }
  bool operator==(const Net& other) const {
    return large == other.large && small == other.small && scalar == other.scalar;
  }
};

inline void save(int ranks, const Directory& directory, float from, bool shared = true,
                 std::size_t rows = kRows, std::uint64_t step = 12) {
  on_ranks(ranks, "auto", [&](Communicator& communicator) {
    Net net(rows);
    net.fill(from);
    save_checkpoint(communicator, directory.checkpoint(), slices_to_save(net.list, communicator, shared),
                    {.step = step, .note = "{\"rate\": 0.1}"});
  });
}

}  // namespace lockstep::testing
