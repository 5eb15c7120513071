// "Did you mean ...": the known name closest to a misspelt one.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace lockstep::internal {

/// Levenshtein distance: the fewest insertions, deletions and substitutions that turn `a` into `b`. O(|a|
/// |b|) time.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate with the smallest edit distance to `word`, the first one of several; empty when there is no
/// candidate.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace lockstep::internal
