// LaunchSource: the launchers that lockstep understands, and what each says about this process.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/status.hpp"
#include "lib/bootstrap/launch.hpp"

namespace lockstep::internal {

struct LaunchSource {
  std::string_view id;    ///< As in LOCKSTEP_LAUNCHER.
  std::string_view name;  ///< As in messages.
  std::string_view sign;  ///< A variable that this launcher sets besides the rank; empty if there is none.
  std::vector<std::string_view> rank, size, local_size;  ///< Variables, the first that is set counts;
                                                         ///< LOCKSTEP_LOCAL_WORLD_SIZE before any.
  bool has_agents = false;  ///< Its daemon on each host starts the ranks, and may itself be a task of Slurm.
};

/// What a source says. Unset where its variable is not there.
struct LaunchClaim {
  const LaunchSource* source = nullptr;
  std::optional<int> rank, size, local_size;
  std::string rank_variable, size_variable;  ///< Which variables said so.
  bool is_slurm_step = false;                ///< The ranks are the tasks of a Slurm step.
  /// "torchrun says rank 3 of 8 (RANK, WORLD_SIZE)".
  std::string text() const;
  bool on_one_host() const { return size && local_size == size; }
};

/// The one claim that counts, or nothing when no source speaks. LOCKSTEP_LAUNCHER, if set, is the only one
/// heard.
Result<std::optional<LaunchClaim>> choose_claim(const Environment& environment, const ProcessIds& process);

/// The value of a variable, or an empty view.
std::string_view value_of(const Environment& environment, std::string_view name);

}  // namespace lockstep::internal
