#include "lib/base/status.hpp"

#include <cstring>

namespace lockstep {

Error::Error(ErrorCode code, const std::string& message, int culprit)
    : std::runtime_error(message), code_(code), culprit_(culprit) {}

}  // namespace lockstep

namespace lockstep::internal {

Status system_error(const std::string& what, int error_number) {
  const ErrorCode code = error_number == ENOMEM ? ErrorCode::out_of_memory : ErrorCode::system;
  return Status(code, what + ": " + std::strerror(error_number));
}

}  // namespace lockstep::internal
