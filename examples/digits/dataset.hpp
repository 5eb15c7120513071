// The handwritten digits: images as floats in [0, 1] and their classes, split into what is trained on and
// what is held out.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace digits {

inline constexpr std::size_t kPixels = 64;
inline constexpr std::size_t kClasses = 10;

/// Samples as one matrix, a row each.
struct Dataset {
  std::vector<float> images;  ///< size() rows of kPixels.
  std::vector<int> labels;    ///< 0..kClasses-1.

  std::size_t size() const { return labels.size(); }
};

/// Every fifth sample is held out for the test: those at positions 4, 9, 14, ...
struct Split {
  Dataset train;
  Dataset test;
};

/// Reads digits.csv (see NOTICE.md). Throws std::runtime_error that names the file and the line.
Split load_digits(const std::string& path);

/// A batch: the chosen rows of a dataset, copied together.
Dataset select(const Dataset& dataset, std::span<const std::size_t> samples);

}  // namespace digits
