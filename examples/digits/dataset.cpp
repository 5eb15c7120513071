#include "examples/digits/dataset.hpp"

#include <array>
#include <charconv>
#include <fstream>
#include <stdexcept>
#include <string_view>

namespace digits {
namespace {

constexpr std::size_t kHeldOutEvery = 5;
constexpr float kDarkest = 16.0f;

/// The numbers of one line: kPixels pixels and the class. False when there are fewer, more, or other things
/// than numbers.
bool parse_line(std::string_view line, std::array<int, kPixels + 1>& numbers) {
  const char* next = line.data();
  const char* const end = next + line.size();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0 && (next == end || *next++ != ',')) return false;
    const auto [after, error] = std::from_chars(next, end, numbers[i]);
    if (error != std::errc()) return false;
    next = after;
  }
  return next == end && numbers.back() >= 0 && numbers.back() < static_cast<int>(kClasses);
}

void append(Dataset& dataset, const std::array<int, kPixels + 1>& numbers) {
  for (std::size_t i = 0; i < kPixels; ++i)
    dataset.images.push_back(static_cast<float>(numbers[i]) / kDarkest);
  dataset.labels.push_back(numbers.back());
}

}  // namespace

Split load_digits(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error("cannot read " + path + "; pass --data with the path of digits.csv");
  Split split;
  std::array<int, kPixels + 1> numbers{};
  std::string line;
  for (std::size_t n = 0; std::getline(file, line); ++n) {
    if (!parse_line(line, numbers)) {
      throw std::runtime_error(path + ", line " + std::to_string(n + 1) +
                               ": not 64 pixels and a class of 0 to 9");
    }
    append(n % kHeldOutEvery == kHeldOutEvery - 1 ? split.test : split.train, numbers);
  }
  if (split.train.labels.empty())  // A directory is opened and read like an empty file.
    throw std::runtime_error(path + " has no samples; pass --data with the path of digits.csv");
  return split;
}

Dataset select(const Dataset& dataset, std::span<const std::size_t> samples) {
  Dataset batch;
  batch.images.reserve(samples.size() * kPixels);
  batch.labels.reserve(samples.size());
  for (const std::size_t s : samples) {
    const float* row = dataset.images.data() + s * kPixels;
    batch.images.insert(batch.images.end(), row, row + kPixels);
    batch.labels.push_back(dataset.labels[s]);
  }
  return batch;
}

}  // namespace digits
