// What one rank can fail at alone, while its peers go on to what comes next.
#pragma once

#include <exception>
#include <new>
#include <string>

#include "lockstep/error.hpp"

namespace lockstep::internal {

/// Runs `action`. When it throws, the peers would wait for this rank: the communicator is aborted, and what
/// is thrown on, an Error always, says "<where> on rank 3: ..." here and there. `Ranks`: a Communicator, or
/// one of devices.
template <typename Ranks, typename Action>
void telling_peers(Ranks& communicator, const std::string& where, Action action) {
  const int rank = communicator.rank();
  const auto tell = [&](ErrorCode code, const std::string& why, int culprit) {
    const std::string text = where + " on rank " + std::to_string(rank) + ": " + why;
    communicator.abort(text);
    return Error(code, text, culprit >= 0 ? culprit : rank);
  };
  try {
    action();
  } catch (const Error& error) {
    throw tell(error.code(), error.what(), error.culprit());
  } catch (const std::bad_alloc&) {
    throw tell(ErrorCode::out_of_memory, "no memory", rank);
  } catch (const std::exception& error) {  // Of the caller's own code.
    throw tell(ErrorCode::aborted, error.what(), rank);
  } catch (...) {
    throw tell(ErrorCode::aborted, "something was thrown that is no std::exception", rank);
  }
}

}  // namespace lockstep::internal
