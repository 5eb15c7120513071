// Ranks as forked processes that meet through a file, for tests of the public face.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "lockstep/lockstep.hpp"
#include "tests/support/forked.hpp"

namespace lockstep::testing {

/// A directory of its own that is gone with the object.
class MeetingPlace {
 public:
  MeetingPlace() {
    std::string pattern = (std::filesystem::temp_directory_path() / "lockstep-test-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~MeetingPlace() { std::filesystem::remove_all(path_); }
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;

  Communicator join(int rank, int size, const std::string& transports) const {
    InitOptions options;
    options.rank = rank;
    options.world_size = size;
    options.rendezvous = "file://" + path_ + "/store";
    options.transports = transports;
    options.timeout = std::chrono::seconds(30);
    return Communicator::create(options);
  }

 private:
  std::string path_;
};

}  // namespace lockstep::testing
