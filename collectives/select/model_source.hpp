// Which cost model a job uses, and how long its pipelined messages are. Rank 0 loads it and announces it in
// its description (Member::notice); every rank adopts that, whatever it would have loaded itself, so that all
// decide alike.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "collectives/select/cost_model.hpp"

namespace lockstep::internal {

/// The model of a job, equal on all ranks.
struct SharedModel {
  Network network;  ///< Between its hosts, once it was measured; or as the model's file says.
  std::shared_ptr<const CostModel> model = builtin_model();
  std::string source = "built-in";  ///< Or the file, on rank 0's host.
  std::uint64_t hash = 0;           ///< Of the text.
  std::uint64_t segment_bytes = 0;  ///< Of one pipelined message: rank 0's LOCKSTEP_SEGMENT; 0 = not said.
};

/// A model file larger than this is none.
inline constexpr std::size_t kMaxModelBytes = 256 << 10;

/// Rank 0: LOCKSTEP_TUNING, else tuning.json in the user's configuration directory, else the built-in model.
/// Warns on standard error when the file was measured on another machine. A file that cannot be used becomes
/// an announcement of that error, which every rank then ends with.
std::string announce_model();
/// Every rank: the announced model. Errors: rank 0's, or the text is not the one with the announced hash.
Result<SharedModel> adopt_model(const std::string& announcement);

/// The file in the user's configuration directory; empty where there is no such place.
std::string default_model_path();
/// This machine, with all its cores, whatever this process may run on.
MachineFingerprint this_machine();
/// "a34f...": the hash as reports show it.
std::string hash_text(std::uint64_t hash);

}  // namespace lockstep::internal
