// Errors of set-up steps end a test with their words.
#pragma once

#include <stdexcept>
#include <utility>

#include "lib/base/status.hpp"

namespace lockstep::internal::testing {

inline void must(const Status& status) {
  if (!status.ok()) throw std::runtime_error(status.message());
}

template <typename T>
T must(Result<T> result) {
  must(result.status());
  return std::move(*result);
}

}  // namespace lockstep::internal::testing
