// Launch: who this process is, from the caller's options and what launchers leave in the environment. Pure
// functions over a map of variables.
//
// Sources, the first that speaks wins: InitOptions, LOCKSTEP_RANK/LOCKSTEP_WORLD_SIZE (lockstep-run),
// torchrun, PMIx/Open MPI, PMI (MPICH, Intel MPI), a Slurm step, plain RANK/WORLD_SIZE. Variables of two
// sources that disagree are an error naming both; LOCKSTEP_LAUNCHER chooses one. Agents of torchrun or mpirun
// may be tasks of a Slurm step: its numbers are theirs then, and count for nothing, also where Slurm tells
// them by PMI or PMIx once more. A source that knows a rank but no size is an error, never a silent group of
// one. Without any source the group has one rank.
//
// Where the ranks meet, when neither InitOptions nor LOCKSTEP_RENDEZVOUS says so:
// - torchrun: its agent may hold MASTER_PORT already. Ranks of one host meet at local://NAME, named from
//   TORCHELASTIC_RUN_ID, MASTER_PORT, the restart count and the container that has this port; ranks of
//   several hosts on MASTER_ADDR, where rank 0 listens at a port drawn from the first two.
// - others: at MASTER_ADDR:MASTER_PORT if both are set; else at local://NAME named from the job when all
//   ranks are on one host; else, under Slurm, at the step's first host and a port drawn from the job's
//   number; else it is an error that asks for LOCKSTEP_RENDEZVOUS.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "lib/base/status.hpp"
#include "lockstep/communicator.hpp"

namespace lockstep::internal {

/// Of a rendezvous that another process serves (lockstep::Rendezvous): "served://host:port".
inline constexpr std::string_view kServedScheme = "served://";

using Environment = std::map<std::string, std::string, std::less<>>;

/// Variables of this process, those with an empty value too: they count as not set here, but mean something
/// to programs that lockstep-run starts (CUDA_VISIBLE_DEVICES).
Environment current_environment();

struct Launch {
  int rank = 0;
  int world_size = 1;
  std::string source;      ///< "torchrun", "explicit arguments", "single process" ...
  std::string rendezvous;  ///< tcp://host:port (served:// becomes that), file:///path, memory://name or
                           ///< local://name. Empty for a single process.
  std::string given;       ///< The same as it was written, for messages.
  /// Who listens at the rendezvous already: "the launcher". Empty where rank 0 has to.
  std::string served_by;
  bool is_served() const { return !served_by.empty(); }
  bool own_numbers = false;  ///< The caller gave a rank that is not lockstep-run's number of this process.
  std::string job_id;        ///< May be empty.
  /// For lack of a job's name: ranks with another parent would meet elsewhere.
  bool named_by_parent = false;
};

struct ProcessIds {
  int own = 0;              ///< Tells whether this process is the task that Slurm counts.
  int parent = 0;           ///< Tells jobs of one host apart whose launcher gives them no name.
  std::string container{};  ///< Tells containers apart that share a folder: ports or processes of both have
                            ///< the same numbers.
};

Result<Launch> resolve_launch(const InitOptions& options, const Environment& environment,
                              const ProcessIds& process);

/// The secret of options, LOCKSTEP_SECRET or LOCKSTEP_SECRET_FILE; empty when there is none. The file must
/// belong to this user and be closed to all others. Reads that file.
Result<std::string> load_secret(const InitOptions& options, const Environment& environment);

}  // namespace lockstep::internal
