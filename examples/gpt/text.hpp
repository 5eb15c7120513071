// What the model reads: how numbers follow one another, such as "after seven comes eight."
#pragma once

#include <string>

#include "examples/gpt/model.hpp"

namespace gpt {

/// What comes after and before each number from zero to twenty, `repeats` times, each time in another order.
std::string write_counting(std::size_t repeats);

/// A text as numbers from 0, by the rank of each character in the alphabet of the text.
class Text {
 public:
  explicit Text(const std::string& text);

  std::size_t size() const { return characters_.size(); }
  std::size_t vocabulary() const { return alphabet_.size(); }
  std::vector<int> encode(const std::string& text) const;
  char decode(int character) const { return alphabet_[static_cast<std::size_t>(character)]; }

  /// Sequences of `length` that begin at these places; each must leave one character after its end.
  Batch cut(std::span<const std::size_t> starts, std::size_t length) const;

 private:
  std::string alphabet_;
  std::vector<int> characters_;
};

/// `count` places for sequences of `length` in a text of that size.
std::vector<std::size_t> draw_starts(std::size_t count, std::size_t text, std::size_t length, Random& random);

/// `prompt` and the characters that the model finds likeliest after it, up to and including a full stop or
/// the end of its sequence.
std::string complete(Model& model, const Text& text, const std::string& prompt, std::size_t length);

}  // namespace gpt
