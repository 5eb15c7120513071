#include "collectives/engine/reason.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "transports/frame.hpp"

namespace lockstep::internal {

std::string encode_reason(const Status& why) {
  std::string text = std::to_string(static_cast<int>(why.code())) + " " + std::to_string(why.culprit()) +
                     " " + why.message();
  text.resize(std::min<std::size_t>(text.size(), kMaxReasonBytes - 1));
  return text;
}

Status decode_reason(const std::string& text, int size) {
  char* rest = nullptr;
  const long code = std::strtol(text.c_str(), &rest, 10);
  const long culprit = std::strtol(rest, &rest, 10);
  const bool known = code > 0 && code <= static_cast<long>(ErrorCode::device_failed);
  std::string message(rest + (*rest == ' ' ? 1 : 0));
  return Status(known ? static_cast<ErrorCode>(code) : ErrorCode::aborted, std::move(message),
                culprit >= 0 && culprit < size ? static_cast<int>(culprit) : -1);
}

}  // namespace lockstep::internal
