#include "lib/base/status.hpp"

#include <cassert>
#include <cstring>
#include <new>
#include <utility>

namespace lockstep {

Error::Error(ErrorCode code, const std::string& message, int culprit)
    : std::runtime_error(message), code_(code), culprit_(culprit) {}

}  // namespace lockstep

namespace lockstep::internal {

Status::Status(ErrorCode code, std::string message, int culprit) noexcept : code_(code), culprit_(culprit) {
  assert(code != ErrorCode::ok);
  if (message.empty()) return;
  try {
    message_ = std::make_shared<const std::string>(std::move(message));
  } catch (const std::bad_alloc&) {
  }
}

Status system_error(const std::string& what, int error_number) {
  const ErrorCode code = error_number == ENOMEM ? ErrorCode::out_of_memory : ErrorCode::system;
  return Status(code, what + ": " + std::strerror(error_number));
}

}  // namespace lockstep::internal
