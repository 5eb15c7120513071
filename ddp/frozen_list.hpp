// The list that freeze() is given, compared among ranks.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ddp/closing_exchange.hpp"

namespace lockstep::internal {

/// Collective. Of each of `parameters` parameters whether `list` names it. Throws, on all ranks,
/// Error(mismatch) where the lists differ, and Error(invalid_argument) where they name what does not exist.
std::vector<bool> agree_on_frozen(ClosingExchange& closing, std::span<const std::size_t> list,
                                  std::size_t parameters);

}  // namespace lockstep::internal
