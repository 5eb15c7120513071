// The reason of a revoke as it travels to peers: "code culprit text".
#pragma once

#include <string>
#include <string_view>

#include "lib/base/status.hpp"

namespace lockstep::internal {

/// At most kMaxReasonBytes - 1 bytes; a longer text is cut.
std::string encode_reason(const Status& why);
/// Of a group of `size` ranks. Any bytes give an error: an unknown code counts as aborted, a culprit out of
/// range as nobody.
Status decode_reason(std::string_view text, int size);

}  // namespace lockstep::internal
