#include "collectives/engine/reason.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
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

Status decode_reason(std::string_view text, int size) {
  const auto number = [&](std::int64_t otherwise) {
    if (text.starts_with(' ')) text.remove_prefix(1);
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), otherwise);
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return otherwise;
  };
  const std::int64_t code = number(0);
  const std::int64_t culprit = number(-1);
  const ErrorCode known = error_code(code).value_or(ErrorCode::ok);
  std::string message;
  try {
    message = text.substr(text.starts_with(' ') ? 1 : 0);
  } catch (const std::bad_alloc&) {  // Who is to blame is known all the same.
  }
  return Status(known == ErrorCode::ok ? ErrorCode::aborted : known, std::move(message),
                culprit >= 0 && culprit < size ? static_cast<int>(culprit) : -1);
}

}  // namespace lockstep::internal
