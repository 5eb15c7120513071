// What each rank did alone becomes one verdict.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <vector>

#include "lib/base/status.hpp"
#include "lockstep/communicator.hpp"

namespace lockstep::internal {

/// Collective. ok when every rank's status is; otherwise, on every rank, that of the lowest rank which
/// failed, with its number in front and as the culprit.
Status agree(Communicator& communicator, const Status& mine);

/// The status that `action` returns, or of what it throws, for lack of memory say: between two collectives
/// nothing may leave a rank's peers waiting.
template <typename Action>
Status attempt(Action action) try {
  return action();
} catch (const std::bad_alloc&) {
  return Status(ErrorCode::out_of_memory, "no memory");
} catch (const std::exception& error) {
  return Status(ErrorCode::system, error.what());
}

/// Collective. Every rank's text, at rank 0; elsewhere nothing.
std::vector<std::string> gather_texts(Communicator& communicator, const std::string& mine);

}  // namespace lockstep::internal
