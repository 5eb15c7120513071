// Ranks as forked processes that meet through a file, for tests of the public face.
#pragma once

#include <string>

#include "lockstep/lockstep.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep::testing {

/// A file of its own that is gone with the object.
class MeetingPlace {
 public:
  Communicator join(int rank, int size, const std::string& transports,
                    std::chrono::seconds timeout = std::chrono::seconds(30)) const {
    InitOptions options;
    options.rank = rank;
    options.world_size = size;
    options.rendezvous = "file://" + directory_.path() + "/store";
    options.transports = transports;
    options.timeout = timeout;
    return Communicator::create(options);
  }

 private:
  const internal::TemporaryDirectory directory_;
};

}  // namespace lockstep::testing
