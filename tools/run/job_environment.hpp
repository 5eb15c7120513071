// The variables that lockstep-run gives to each rank.
#pragma once

#include <string>

#include "lib/bootstrap/launch.hpp"

namespace lockstep::run {

/// What all ranks have in common.
struct JobFacts {
  int ranks = 1;
  std::string rendezvous;  ///< "tcp://127.0.0.1:41833", where lockstep-run listens.
  std::string job_id;
  std::string secret;
  int master_port = 0;  ///< For programs that start torch's own store: free when asked for, bound by nobody.
  int cores = 1;        ///< That this process may run on.
};

/// `inherited` with rank `rank`'s variables set: LOCKSTEP_RANK ..., torchrun's RANK ..., and OMP_NUM_THREADS
/// unless it is set.
internal::Environment rank_environment(const internal::Environment& inherited, const JobFacts& facts,
                                       int rank);

/// Facts of a new job whose store listens at `rendezvous`: random secret and id.
JobFacts new_job(int ranks, const std::string& rendezvous, const std::string& secret,
                 const std::string& job_id);

/// `bytes` random bytes as hexadecimal text.
std::string random_text(int bytes);

}  // namespace lockstep::run
