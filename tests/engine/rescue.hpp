// The bound of waits inside the library, which no test can leave.
#pragma once

#include <atomic>
#include <thread>

#include "lockstep/lockstep.hpp"
#include "tests/support/eventually.hpp"

namespace lockstep::testing {

/// Aborts `communicator` when this object lives longer than anything here takes, so that a call that would
/// wait for ever fails.
class Rescue {
 public:
  explicit Rescue(Communicator& communicator)
      : thread_([this, on = &communicator] {
          if (!eventually([&] { return over_.load(); })) on->abort("the test waited too long");
        }) {}
  ~Rescue() {
    over_.store(true);
    thread_.join();
  }
  Rescue(const Rescue&) = delete;
  Rescue& operator=(const Rescue&) = delete;

 private:
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace lockstep::testing
