#include "examples/gpt/text.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>

namespace gpt {
namespace {

constexpr const char* kNumbers[] = {"zero",     "one",      "two",      "three",   "four",    "five",
                                    "six",      "seven",    "eight",    "nine",    "ten",     "eleven",
                                    "twelve",   "thirteen", "fourteen", "fifteen", "sixteen", "seventeen",
                                    "eighteen", "nineteen", "twenty"};
constexpr std::uint64_t kOrderSeed = 1;

}  // namespace

std::string write_counting(std::size_t repeats) {
  std::vector<std::string> sentences;
  for (std::size_t n = 0; n + 1 < std::size(kNumbers); ++n) {
    sentences.push_back(std::string("after ") + kNumbers[n] + " comes " + kNumbers[n + 1] + ". ");
    sentences.push_back(std::string("before ") + kNumbers[n + 1] + " comes " + kNumbers[n] + ". ");
  }
  Random random(kOrderSeed);
  std::string text;
  for (std::size_t repeat = 0; repeat < repeats; ++repeat) {
    for (std::size_t i = sentences.size(); i-- > 1;) std::swap(sentences[i], sentences[random.below(i + 1)]);
    for (const std::string& sentence : sentences) text += sentence;
  }
  return text;
}

Text::Text(const std::string& text) {
  const std::set<char> different(text.begin(), text.end());
  alphabet_.assign(different.begin(), different.end());
  characters_ = encode(text);
}

std::vector<int> Text::encode(const std::string& text) const {
  std::vector<int> characters;
  for (const char c : text) {
    const auto place = alphabet_.find(c);
    if (place == std::string::npos)
      throw std::invalid_argument(std::string("the text has no '") + c +
                                  "'; use its characters: " + alphabet_);
    characters.push_back(static_cast<int>(place));
  }
  return characters;
}

Batch Text::cut(std::span<const std::size_t> starts, std::size_t length) const {
  Batch batch;
  for (const std::size_t start : starts) {
    const auto first = characters_.begin() + static_cast<std::ptrdiff_t>(start);
    const auto end = first + static_cast<std::ptrdiff_t>(length);
    batch.characters.insert(batch.characters.end(), first, end);
    batch.targets.insert(batch.targets.end(), first + 1, end + 1);
  }
  return batch;
}

std::vector<std::size_t> draw_starts(std::size_t count, std::size_t text, std::size_t length,
                                     Random& random) {
  std::vector<std::size_t> starts(count);
  for (std::size_t& start : starts) start = random.below(text - length);
  return starts;
}

/// What lies behind the last character cannot change its row, because attention looks back only; so the
/// sequence is filled up with anything.
std::string complete(Model& model, const Text& text, const std::string& prompt, std::size_t length) {
  std::string line = prompt;
  while (line.size() < length && line.back() != '.') {
    std::vector<int> characters = text.encode(line);
    characters.resize(length);
    const Floats& logits = model.forward(characters);
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>((line.size() - 1) * text.vocabulary());
    const auto likeliest = std::max_element(row, row + static_cast<std::ptrdiff_t>(text.vocabulary()));
    line += text.decode(static_cast<int>(likeliest - row));
  }
  return line;
}

}  // namespace gpt
