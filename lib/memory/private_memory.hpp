// What kind of memory a range is, as the kernel's map of this process tells it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "lib/base/status.hpp"

namespace lockstep::internal {

/// Ok when all of [begin, begin + bytes) is readable and writable private anonymous memory (heap included,
/// stacks not): memory that may be replaced by a shared mapping with the same contents. Otherwise
/// invalid_argument, naming the part that is not.
Status check_private_anonymous(std::uintptr_t begin, std::size_t bytes);

}  // namespace lockstep::internal
