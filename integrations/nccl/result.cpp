#include "integrations/nccl/result.hpp"

#include <mutex>
#include <new>
#include <string_view>
#include <system_error>

#include "integrations/nccl/later_versions.hpp"

namespace lockstep::nccl {
namespace {

thread_local std::string t_text;

struct Shared {
  std::mutex mutex;
  std::string text;
};
// Never destroyed: threads of the caller may fail while the process ends.
Shared& shared() {
  static auto& instance = *new Shared;
  return instance;
}

}  // namespace

ncclResult_t to_result(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::ok:
      return ncclSuccess;
    case ErrorCode::invalid_argument:
      return ncclInvalidArgument;
    case ErrorCode::mismatch:
    case ErrorCode::refused:
    case ErrorCode::not_supported:
    case ErrorCode::configuration:
      return ncclInvalidUsage;
    case ErrorCode::peer_lost:
    case ErrorCode::timeout:
    case ErrorCode::aborted:
    case ErrorCode::unauthorized:
      return ncclRemoteError;
    case ErrorCode::system:
    case ErrorCode::out_of_memory:
      return ncclSystemError;
    case ErrorCode::device_failed:
      return ncclUnhandledCudaError;
    case ErrorCode::internal:
      break;
  }
  return ncclInternalError;
}

ncclResult_t remember(ncclResult_t result, const char* function, const char* text) noexcept {
  try {
    // A failure that a communicator keeps is told again, at times by the call that it was told by first.
    const std::string prefix = std::string(function) + ": ";
    t_text = std::string_view(text).starts_with(prefix) ? text : prefix + text;
    const std::lock_guard lock(shared().mutex);
    shared().text = t_text;
  } catch (const std::bad_alloc&) {
    // The code has to do without its sentence.
  }
  return result;
}

std::string last_text() {
  if (!t_text.empty()) return t_text;
  const std::lock_guard lock(shared().mutex);
  return shared().text;
}

int refuse_later_call(const char* function) noexcept {
  return remember(ncclInvalidUsage, function,
                  "this function came with a later version of NCCL than 2.28, whose calls this library has; "
                  "build the program with the header of 2.28, or do without the call");
}

ncclResult_t handle_exception(const char* function) noexcept {
  try {
    throw;
  } catch (const Refusal& refusal) {
    return remember(refusal.result(), function, refusal.what());
  } catch (const Error& error) {
    return remember(to_result(error.code()), function, error.what());
  } catch (const std::bad_alloc&) {
    return remember(ncclSystemError, function, "out of host memory");
  } catch (const std::system_error& error) {  // No more threads, above all.
    return remember(ncclSystemError, function, error.what());
  } catch (const std::exception& error) {
    return remember(ncclInternalError, function, error.what());
  } catch (...) {
    return remember(ncclInternalError, function, "an exception of unknown type");
  }
}

}  // namespace lockstep::nccl
