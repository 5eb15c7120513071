#include "lib/base/status.hpp"

#include <cassert>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace lockstep {

Error::Error(ErrorCode code, const std::string& message, int culprit)
    : std::runtime_error(message), code_(code), culprit_(culprit) {}

}  // namespace lockstep

namespace lockstep::internal {

Status::Status(ErrorCode code, std::string message, int culprit) noexcept {
  assert(code != ErrorCode::ok);
  const auto* const failure =
      message.empty() ? nullptr : new (std::nothrow) Failure{1, code, culprit, std::move(message)};
  word_ = failure != nullptr ? reinterpret_cast<std::uint64_t>(failure)
                             : static_cast<std::uint64_t>(static_cast<std::uint32_t>(culprit)) << 32 |
                                   static_cast<std::uint64_t>(code) << 1 | 1;
}

void Status::release() noexcept {
  if (failure()->owners.fetch_sub(1, std::memory_order_acq_rel) == 1) delete failure();
}

Status system_error(const std::string& what, int error_number) {
  const ErrorCode code = error_number == ENOMEM ? ErrorCode::out_of_memory : ErrorCode::system;
  const char* const next = error_number == EMFILE ? ": raise the limit of open files (`ulimit -n`)" : "";
  return Status(code, what + ": " + std::strerror(error_number) + next);
}

}  // namespace lockstep::internal
