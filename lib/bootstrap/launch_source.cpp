#include "lib/bootstrap/launch_source.hpp"

#include <algorithm>
#include <cstdint>

#include "lib/base/parse.hpp"

namespace lockstep::internal {
namespace {

// In the order of precedence.
const std::vector<LaunchSource>& sources() {
  static const std::vector<LaunchSource> table{
      {"lockstep", "lockstep-run", "LOCKSTEP_RENDEZVOUS", {"LOCKSTEP_RANK"}, {"LOCKSTEP_WORLD_SIZE"}, {}},
      {"torchrun", "torchrun", "TORCHELASTIC_RUN_ID", {"RANK"}, {"WORLD_SIZE"}, {"LOCAL_WORLD_SIZE"}, true},
      {"openmpi",
       "Open MPI",
       "PMIX_NAMESPACE",
       {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"},
       {"OMPI_COMM_WORLD_SIZE"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE"},
       true},
      {"mpich", "MPICH", "PMI_FD", {"PMI_RANK"}, {"PMI_SIZE"}, {"MPI_LOCALNRANKS"}, true},
      {"slurm", "Slurm", "SLURM_STEP_NUM_TASKS", {"SLURM_PROCID"}, {"SLURM_STEP_NUM_TASKS"}, {}},
      {"env", "the environment", "", {"RANK"}, {"WORLD_SIZE"}, {"LOCAL_WORLD_SIZE"}},
  };
  return table;
}

/// Reads the first of `names` that is set into `value`, and its name into `used`.
Status read_number(const Environment& environment, const std::vector<std::string_view>& names,
                   std::optional<int>& value, std::string& used) {
  for (const std::string_view name : names) {
    const std::string_view text = value_of(environment, name);
    if (text.empty()) continue;
    const std::optional<std::int64_t> number = parse_integer(text);
    if (!number || *number < INT32_MIN || *number > INT32_MAX) {
      return Status(ErrorCode::configuration,
                    std::string(name) + "=" + std::string(text) + " in the environment is not a number");
    }
    value = static_cast<int>(*number);
    used = name;
    return Status();
  }
  return Status();
}

/// Slurm lists tasks by node; all that matters here is whether there is one node.
void read_slurm_local_size(const Environment& environment, LaunchClaim& claim) {
  if (value_of(environment, "SLURM_STEP_NUM_NODES") == "1") claim.local_size = claim.size;
}

Result<LaunchClaim> read_claim(const LaunchSource& source, const Environment& environment) {
  LaunchClaim claim;
  claim.source = &source;
  std::string local_variable;
  LOCKSTEP_RETURN_IF_ERROR(read_number(environment, source.rank, claim.rank, claim.rank_variable));
  LOCKSTEP_RETURN_IF_ERROR(read_number(environment, source.size, claim.size, claim.size_variable));
  LOCKSTEP_RETURN_IF_ERROR(read_number(environment, source.local_size, claim.local_size, local_variable));
  claim.is_slurm_step = source.id == "slurm";
  if (claim.is_slurm_step) read_slurm_local_size(environment, claim);
  LOCKSTEP_RETURN_IF_ERROR(
      read_number(environment, {"LOCKSTEP_LOCAL_WORLD_SIZE"}, claim.local_size, local_variable));
  return claim;
}

/// In a batch script without srun, Slurm numbers the one process that runs. That is no source beside a
/// launcher that the script started; alone it is a group of one only where the job has one task.
bool is_slurm_batch(const Environment& environment) {
  return !value_of(environment, "SLURM_PROCID").empty() &&
         value_of(environment, "SLURM_STEP_NUM_TASKS").empty();
}

bool is_single_slurm_task(const Environment& environment) {
  const std::string_view tasks = value_of(environment, "SLURM_NTASKS");
  return (tasks.empty() ? value_of(environment, "SLURM_JOB_NUM_NODES") : tasks) == "1";
}

bool speaks(const LaunchSource& source, const LaunchClaim& claim, const Environment& environment) {
  const bool signed_by = !source.sign.empty() && !value_of(environment, source.sign).empty();
  if (source.id == "torchrun") return signed_by;  // Its other variables are plain RANK's.
  if (source.id == "slurm") return signed_by;
  return signed_by || claim.rank || claim.size;
}

/// Whether Slurm counts another process than this one: the agent, or the script, that started it.
bool is_below_slurm_task(const Environment& environment, const ProcessIds& process) {
  const std::string_view task = value_of(environment, "SLURM_TASK_PID");
  return !task.empty() && task != std::to_string(process.own);
}

/// Slurm serves PMI and PMIx to the tasks of a step (srun --mpi=pmi2, pmix): with these it tells its own
/// numbers once more, in variables that mpirun has, too. But mpirun says how many of its ranks a host has.
void drop_claims_that_slurm_makes(std::vector<LaunchClaim>& claims, const Environment& environment) {
  const auto step = std::find_if(claims.begin(), claims.end(),
                                 [](const LaunchClaim& claim) { return claim.is_slurm_step; });
  if (step == claims.end()) return;
  std::erase_if(claims, [&environment, slurm = *step](const LaunchClaim& claim) {
    const bool says_more =
        std::any_of(claim.source->local_size.begin(), claim.source->local_size.end(),
                    [&](std::string_view variable) { return !value_of(environment, variable).empty(); });
    const bool is_the_same =
        claim.rank && claim.rank == slurm.rank && (!claim.size || claim.size == slurm.size);
    return claim.source->has_agents && !says_more && is_the_same;
  });
}

/// `srun torchrun` and `srun mpirun`: the step counts their agents, so its numbers are not the ranks'.
void drop_claim_on_agents(std::vector<LaunchClaim>& claims, const Environment& environment,
                          const ProcessIds& process) {
  const bool agents = std::any_of(claims.begin(), claims.end(), [](const LaunchClaim& claim) {
    return claim.source->has_agents && claim.rank && claim.size;
  });
  if (!agents || !is_below_slurm_task(environment, process)) return;
  std::erase_if(claims, [](const LaunchClaim& claim) { return claim.is_slurm_step; });
}

Result<std::vector<LaunchClaim>> all_claims(const Environment& environment, const ProcessIds& process) {
  std::vector<LaunchClaim> claims;
  for (const LaunchSource& source : sources()) {
    auto claim = read_claim(source, environment);
    if (!claim.ok()) return claim.status();
    if (speaks(source, *claim, environment)) claims.push_back(std::move(*claim));
  }
  // A lone LOCKSTEP_RENDEZVOUS under torchrun is advice, not a source beside it.
  const auto is_empty = [](const LaunchClaim& claim) { return !claim.rank && !claim.size; };
  if (!std::all_of(claims.begin(), claims.end(), is_empty)) std::erase_if(claims, is_empty);
  drop_claims_that_slurm_makes(claims, environment);
  drop_claim_on_agents(claims, environment, process);
  return claims;
}

/// A launcher was chosen that did not start this process.
Status absent(const LaunchSource& source) {
  return Status(ErrorCode::configuration, "LOCKSTEP_LAUNCHER=" + std::string(source.id) + ", but " +
                                              std::string(source.rank.front()) + " and " +
                                              std::string(source.size.front()) + " are not set");
}

Result<std::vector<LaunchClaim>> chosen_claims(std::string_view id, const Environment& environment) {
  std::string known;
  for (const LaunchSource& source : sources()) {
    if (source.id == id) {
      auto claim = read_claim(source, environment);
      if (!claim.ok()) return claim.status();
      if (!claim->rank && !claim->size) return absent(source);
      return std::vector<LaunchClaim>{std::move(*claim)};
    }
    known += (known.empty() ? "" : ", ") + std::string(source.id);
  }
  return Status(ErrorCode::configuration,
                "LOCKSTEP_LAUNCHER=" + std::string(id) + " is not known; choose one of " + known);
}

std::string disagreement(const LaunchClaim& a, const LaunchClaim& b) {
  return a.text() + ", but " + b.text() + "; set LOCKSTEP_LAUNCHER=" + std::string(a.source->id) +
         " or LOCKSTEP_LAUNCHER=" + std::string(b.source->id) + " to choose";
}

/// Adds what `other` knows and `claim` does not; an error where both know and differ.
Status merge(LaunchClaim& claim, const LaunchClaim& other) {
  const auto differ = [](const std::optional<int>& a, const std::optional<int>& b) {
    return a && b && *a != *b;
  };
  if (differ(claim.rank, other.rank) || differ(claim.size, other.size)) {
    return Status(ErrorCode::configuration, disagreement(claim, other));
  }
  claim.is_slurm_step |= other.is_slurm_step;
  if (!claim.size && other.size) {  // PMIx names no size.
    claim.size = other.size;
    claim.size_variable = other.size_variable;
    claim.local_size = other.local_size;
  }
  if (!claim.rank && other.rank) {
    claim.rank = other.rank;
    claim.rank_variable = other.rank_variable;
  }
  return Status();
}

}  // namespace

std::string_view value_of(const Environment& environment, std::string_view name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string_view() : std::string_view(found->second);
}

std::string LaunchClaim::text() const {
  std::string variables = rank_variable;
  if (!size_variable.empty()) variables += (variables.empty() ? "" : ", ") + size_variable;
  return std::string(source->name) + " says rank " + (rank ? std::to_string(*rank) : "?") + " of " +
         (size ? std::to_string(*size) : "?") + (variables.empty() ? "" : " (" + variables + ")");
}

Result<std::optional<LaunchClaim>> choose_claim(const Environment& environment, const ProcessIds& process) {
  const std::string_view chosen = value_of(environment, "LOCKSTEP_LAUNCHER");
  auto claims = chosen.empty() ? all_claims(environment, process) : chosen_claims(chosen, environment);
  if (!claims.ok()) return claims.status();
  if (!claims->empty()) {
    LaunchClaim claim = claims->front();
    for (const LaunchClaim& other : std::span(*claims).subspan(1))
      LOCKSTEP_RETURN_IF_ERROR(merge(claim, other));
    return std::optional<LaunchClaim>(std::move(claim));
  }
  if (is_slurm_batch(environment) && !is_single_slurm_task(environment)) {
    return Status(ErrorCode::configuration,
                  "SLURM_PROCID is set but SLURM_STEP_NUM_TASKS is not: this process was not started by "
                  "srun, though the job has "
                  "several tasks; start it with srun, or set LOCKSTEP_RANK=0 and LOCKSTEP_WORLD_SIZE=1 for a "
                  "group of one");
  }
  return std::optional<LaunchClaim>();
}

}  // namespace lockstep::internal
