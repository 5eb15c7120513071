#include "collectives/engine/reason.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#include "transports/frame.hpp"

namespace lockstep::internal {

std::string encode_reason(const Status& why) {
  // Short enough to lie in the string itself: without memory peers hear at least this much.
  std::string text = std::to_string(static_cast<int>(why.code())) + " " + std::to_string(why.culprit()) + " ";
  try {
    text += why.message();
    text.resize(std::min<std::size_t>(text.size(), kMaxReasonBytes - 1));
  } catch (const std::bad_alloc&) {
  }
  return text;
}

Status decode_reason(const char* text, int size) {
  char* rest = nullptr;
  const long code = std::strtol(text, &rest, 10);
  const long culprit = std::strtol(rest, &rest, 10);
  const ErrorCode known = error_code(code).value_or(ErrorCode::ok);
  std::string message;
  try {
    message = rest + (*rest == ' ' ? 1 : 0);
  } catch (const std::bad_alloc&) {  // Who is to blame is known all the same.
  }
  return Status(known == ErrorCode::ok ? ErrorCode::aborted : known, std::move(message),
                culprit >= 0 && culprit < size ? static_cast<int>(culprit) : -1);
}

}  // namespace lockstep::internal
