// WrongResult: a hook's result has another size than its bucket. The hook called the collectives that the
// other ranks' hooks called, so the step goes on, and all ranks judge it in the end.
#pragma once

#include <cstddef>
#include <string>

#include "lockstep/error.hpp"

namespace lockstep::internal {

class WrongResult : public Error {
 public:
  WrongResult(std::size_t index, std::size_t count)
      : Error(ErrorCode::invalid_argument,
              "a hook returned " + std::to_string(count) + " elements for bucket " + std::to_string(index)),
        bucket_(index),
        elements_(count) {}

  std::size_t bucket() const noexcept { return bucket_; }
  std::size_t elements() const noexcept { return elements_; }

 private:
  std::size_t bucket_, elements_;
};

}  // namespace lockstep::internal
