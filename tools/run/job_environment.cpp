#include "tools/run/job_environment.hpp"

#include <algorithm>

#include "lib/base/core_set.hpp"

namespace lockstep::run {
namespace {

int free_port(const std::string& host) {
  const auto listener = internal::tcp_listen({host, 0});
  return listener.ok() ? internal::local_address(listener.value()).port : 0;
}

}  // namespace

JobFacts new_job(int ranks, const internal::HostPort& store, const std::string& secret,
                 const std::string& job_id) {
  JobFacts facts;
  facts.ranks = ranks;
  facts.store = store;
  facts.job_id = job_id;
  facts.secret = secret;
  facts.master_port = free_port(store.host);
  facts.cores = static_cast<int>(internal::allowed_cores().count());
  return facts;
}

internal::Environment rank_environment(const internal::Environment& inherited, const JobFacts& facts,
                                       int rank) {
  internal::Environment environment = inherited;
  const std::string number = std::to_string(rank), size = std::to_string(facts.ranks);
  environment["LOCKSTEP_RANK"] = environment["LOCKSTEP_LOCAL_RANK"] = number;
  environment["LOCKSTEP_WORLD_SIZE"] = environment["LOCKSTEP_LOCAL_WORLD_SIZE"] = size;
  environment["LOCKSTEP_RENDEZVOUS"] = "tcp://" + facts.store.text();
  environment["LOCKSTEP_STORE"] = "launcher";
  environment["LOCKSTEP_JOB_ID"] = facts.job_id;
  environment["LOCKSTEP_SECRET"] = facts.secret;
  // lockstep-run may itself run under another launcher, whose variables are still there.
  environment["LOCKSTEP_LAUNCHER"] = "lockstep";
  environment["RANK"] = environment["LOCAL_RANK"] = number;
  environment["WORLD_SIZE"] = environment["LOCAL_WORLD_SIZE"] = size;
  environment["GROUP_RANK"] = "0";
  environment["MASTER_ADDR"] = facts.store.host;
  environment["MASTER_PORT"] = std::to_string(facts.master_port);
  std::string& threads = environment["OMP_NUM_THREADS"];
  if (threads.empty()) threads = std::to_string(std::max(1, facts.cores / facts.ranks));
  return environment;
}

}  // namespace lockstep::run
