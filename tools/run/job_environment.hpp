// The variables that lockstep-run gives to each rank.
#pragma once

#include <string>

#include "lib/bootstrap/launch.hpp"
#include "lib/net/tcp_socket.hpp"

namespace lockstep::run {

/// What all ranks have in common.
struct JobFacts {
  int ranks = 1;
  internal::HostPort store;  ///< Where lockstep-run listens, on a loopback address.
  std::string job_id;
  std::string secret;
  int master_port = 0;  ///< For programs that start torch's own store: free when asked for, bound by nobody.
  int cores = 1;        ///< That this process may run on.
};

/// `inherited` with rank `rank`'s variables set: LOCKSTEP_RANK ..., torchrun's RANK ..., and OMP_NUM_THREADS
/// unless it is set.
internal::Environment rank_environment(const internal::Environment& inherited, const JobFacts& facts,
                                       int rank);

JobFacts new_job(int ranks, const internal::HostPort& store, const std::string& secret,
                 const std::string& job_id);

}  // namespace lockstep::run
