// A model so small that every gradient can be told by hand.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/ddp.hpp"

namespace lockstep {

/// A model of single numbers: gradient i of rank r is 10^i (r + 1).
class Numbers {
 public:
  Numbers(Communicator& communicator, std::size_t count, const ReducerOptions& options = {})
      : communicator_(communicator), values_(count), gradients_(count) {
    std::vector<Parameter> list;
    for (std::size_t i = 0; i < count; ++i) {
      float* const gradient = options.gradients_as_views ? nullptr : &gradients_[i];
      list.push_back({"n" + std::to_string(i), DataType::f32, {}, &values_[i], gradient});
    }
    reducer_.emplace(communicator, list, options);
  }
  Reducer& reducer() { return *reducer_; }
  float& gradient(std::size_t i) { return *static_cast<float*>(reducer_->gradient(i)); }
  float mine(std::size_t i) const {
    return static_cast<float>(std::pow(10, i)) * static_cast<float>(communicator_.rank() + 1);
  }
  void mark(std::size_t i) {
    gradient(i) = mine(i);
    reducer_->mark_ready(i);
  }
  /// Of `average` = 1 if the average over all ranks counts.
  void expect(std::size_t i, double average) {
    EXPECT_FLOAT_EQ(gradient(i), static_cast<float>(std::pow(10, i) * average)) << "gradient " << i;
  }

 private:
  Communicator& communicator_;
  std::vector<float> values_, gradients_;
  std::optional<Reducer> reducer_;
};

}  // namespace lockstep
