// The C API as forked processes call it: what a call must give, and where ranks meet.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "lockstep/lockstep.h"
#include "tests/support/forked.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep::testing {

/// The call is one that a test needs: its failure ends the rank.
inline void ok(lockstep_error_t result) {
  if (result != LOCKSTEP_OK)
    throw std::runtime_error("code " + std::to_string(result) + ": " + lockstep_last_error());
}

/// Whether a call gave `code`, and the thread's last error has `word` in it and `culprit` beside it.
inline ::testing::AssertionResult fails(lockstep_error_t result, lockstep_error_t code,
                                        const std::string& word, int culprit = -1) {
  const std::string text = lockstep_last_error();
  if (result == code && text.find(word) != std::string::npos && lockstep_last_culprit() == culprit)
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "code " << result << ", culprit " << lockstep_last_culprit() << ", \"" << text << "\"; wanted "
         << code << ", culprit " << culprit << " and \"" << word << '"';
}

/// Of the call that has just failed.
inline bool last_error_says(const std::string& word) {
  return std::string(lockstep_last_error()).find(word) != std::string::npos;
}

/// NULL where the call cannot do without.
inline ::testing::AssertionResult refuses_null(lockstep_error_t result, const char* what) {
  return fails(result, LOCKSTEP_INVALID_ARGUMENT, std::string(what) + " is NULL");
}

/// A file of its own that is gone with the object.
class CMeetingPlace {
 public:
  lockstep_init_t init(int rank, int size) const {
    lockstep_init_t init{};
    init.has_rank = 1;
    init.rank = rank;
    init.world_size = size;
    init.rendezvous = rendezvous_.c_str();
    init.timeout_ms = 60'000;
    return init;
  }
  lockstep_comm_t join(int rank, int size, const char* transports) const {
    lockstep_init_t how = init(rank, size);
    how.transports = transports;
    lockstep_comm_t comm = nullptr;
    ok(lockstep_create(&how, &comm));
    return comm;
  }
  const std::string& rendezvous() const { return rendezvous_; }

 private:
  const internal::TemporaryDirectory directory_;
  const std::string rendezvous_ = "file://" + directory_.path() + "/store";
};

/// A group of this process alone.
inline lockstep_comm_t alone() {
  lockstep_comm_t comm = nullptr;
  ok(lockstep_local_group(1, nullptr, &comm));
  return comm;
}

}  // namespace lockstep::testing
