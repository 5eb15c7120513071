// What each rank did alone becomes one verdict.
#pragma once

#include <string>
#include <vector>

#include "lib/base/status.hpp"
#include "lockstep/communicator.hpp"

namespace lockstep::internal {

/// Collective. ok when every rank's status is; otherwise, on every rank, that of the lowest rank which
/// failed, with its number in front and as the culprit.
Status agree(Communicator& communicator, const Status& mine);

/// Collective. Every rank's text, at rank 0; elsewhere nothing.
std::vector<std::string> gather_texts(Communicator& communicator, const std::string& mine);

}  // namespace lockstep::internal
