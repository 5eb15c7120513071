// What one rank refuses alone, while its peers go on.
#pragma once

#include <string>

#include "lockstep/error.hpp"

namespace lockstep::libtorch {

/// Returns what `call` does. Its Error is told to the peers, which would wait for this rank, by an abort.
/// `Ranks`: a Communicator or a Reducer.
template <class Ranks, class Call>
auto telling_peers(Ranks& ranks, int rank, const Call& call) {
  try {
    return call();
  } catch (const Error& e) {
    const std::string text = std::string("LibtorchReducer: ") + e.what();
    ranks.abort(text);
    throw Error(e.code(), text, rank);
  }
}

}  // namespace lockstep::libtorch
