// Composition: a program made of programs of some of the ranks, one after the other.
//
// A part is an ordinary program over links, built for a world of its own (the ranks of a host, one rank of
// each host). Its peers are renamed, its input, output and scratch placed in those of the whole. Parts on one
// track share their lanes, so that all messages between two ranks stay in one lane; a track holds the parts
// of one set of pairs. A part begins when the parts that it follows are complete on this rank: an empty step
// at the head of each of its lanes waits for that.
#pragma once

#include <span>
#include <vector>

#include "collectives/programs/program.hpp"

namespace lockstep::internal {

/// When parts are complete on this rank.
using Completion = std::vector<After>;

class Composition {
 public:
  using Track = std::size_t;
  Track track();

  struct Part {
    Program program;
    std::span<const int> ranks;  ///< Of the whole, by rank of the part.
    Slice input, output;         ///< Where the part's lie.
    bool finishes = false;       ///< Its result is the complete reduction.
  };
  Completion add(Track track, const Part& part, const Completion& after = {});
  /// Scratch memory of the whole.
  Slice reserve(std::uint64_t count);
  Program build() && { return std::move(program_); }

 private:
  struct Home;
  void join(std::size_t lane, const Completion& after);
  std::span<const std::size_t> lanes_of(Track track, std::size_t count);

  Program program_;
  std::vector<std::vector<std::size_t>> tracks_;    ///< Lanes of the program.
  std::vector<std::vector<std::uint32_t>> joined_;  ///< By lane and other lane: steps waited for.
};

/// The world of a part: `whole` with `ranks` alone, of which number `root` is the root.
Shape part_shape(const Shape& whole, Collective collective, std::span<const int> ranks, std::uint64_t count,
                 int root = 0);

}  // namespace lockstep::internal
