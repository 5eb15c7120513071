// Algorithm names as users write them, and the rules of LOCKSTEP_ALGORITHMS.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/programs/program.hpp"
#include "lib/base/status.hpp"

namespace lockstep::internal {

/// The collective of that name.
std::optional<Collective> find_collective(std::string_view name);

/// What a name has in front that is to run there: "staged/".
std::string place_of(Medium medium);

/// CallFacts::algorithm (row of the table + 1) for a name. Where ranks share memory (`domain`) its algorithms
/// come first; a medium in front decides: "links/direct", "staged/direct", "registered/fused". Errors name
/// what exists.
Result<std::uint8_t> resolve_algorithm(Collective collective, std::string_view name, bool domain);

/// LOCKSTEP_ALGORITHMS: "all_reduce:0-16k=recursive_doubling,16k-inf=ring;broadcast:*=binomial". Sizes are
/// bytes of the call's count; the upper end does not belong to the range. Grammar: rule { ";" rule }; rule =
/// collective ":" part { "," part }; part = range "=" name; range = "*" | bytes "-" ( bytes | "inf" ).
class AlgorithmRules {
 public:
  /// `source` is where the text is from, for errors.
  static Result<AlgorithmRules> parse(std::string_view text, std::string_view source = "LOCKSTEP_ALGORITHMS");
  bool empty() const { return rules_.empty(); }
  /// The name for a call, or empty.
  std::string_view name_for(Collective collective, std::uint64_t bytes) const;

 private:
  struct Rule {
    Collective collective;
    std::uint64_t from, to;
    std::string name;
  };
  std::vector<Rule> rules_;
};

/// The rules of the environment; a text that does not parse is reported by check_algorithm_rules() and gives
/// none here.
const AlgorithmRules& environment_rules();
Status check_algorithm_rules();
/// What a call ends with that a rule of the environment names an algorithm for, and `why` that cannot run: it
/// is no fault of the call, and the user decided, so nothing else is taken in silence.
Status rule_cannot_run(const Status& why);

}  // namespace lockstep::internal
