// Ranks as forked processes that meet through a file, for tests of the public face.
#pragma once

#include <string>

#include "lockstep/lockstep.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep::testing {

/// The group of those that meet through the file `store`.
inline Communicator join_at(const std::string& store, int rank, int size, const std::string& transports,
                            std::chrono::seconds timeout = std::chrono::seconds(30)) {
  InitOptions options;
  options.rank = rank;
  options.world_size = size;
  options.rendezvous = "file://" + store;
  options.transports = transports;
  options.timeout = timeout;
  return Communicator::create(options);
}

/// A file of its own that is gone with the object.
class MeetingPlace {
 public:
  std::string store() const { return directory_.path() + "/store"; }
  Communicator join(int rank, int size, const std::string& transports,
                    std::chrono::seconds timeout = std::chrono::seconds(30)) const {
    return join_at(store(), rank, size, transports, timeout);
  }

 private:
  const internal::TemporaryDirectory directory_;
};

}  // namespace lockstep::testing
