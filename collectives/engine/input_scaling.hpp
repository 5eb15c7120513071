// InputScaling: a copy of an operation's input, times a factor, from which its run reads.
#pragma once

#include <algorithm>
#include <cstddef>

#include "collectives/engine/limits.hpp"
#include "lib/reduce/reduce.hpp"

namespace lockstep::internal {

/// Made before the run begins, a block at a time: who makes progress holds the engine's lock, and others may
/// want it in between.
class InputScaling {
 public:
  void begin(DataType type, const std::byte* input, std::byte* copy, std::size_t elements, double factor) {
    type_ = type;
    input_ = input;
    copy_ = copy;
    left_ = elements;
    factor_ = factor;
  }

  /// Makes the next block. True when there are no more.
  bool advance() {
    if (left_ == 0) return true;
    const std::size_t block = std::min(left_, kReduceBlockBytes / size_of(type_));
    scale_copy(type_, input_, copy_, block, factor_);
    input_ += block * size_of(type_);
    copy_ += block * size_of(type_);
    left_ -= block;
    return left_ == 0;
  }

 private:
  DataType type_ = DataType::u8;
  const std::byte* input_ = nullptr;
  std::byte* copy_ = nullptr;
  std::size_t left_ = 0;  // Elements.
  double factor_ = 1;
};

}  // namespace lockstep::internal
