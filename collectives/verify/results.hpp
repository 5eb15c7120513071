// What the public contract promises that a rank's output holds, and the check of it.
#pragma once

#include <string>
#include <vector>

#include "collectives/verify/region.hpp"
#include "collectives/verify/verify.hpp"

namespace lockstep::internal {

/// Where input and output begin in the one buffer of an in-place call.
struct InPlace {
  bool exists = false;  ///< Whether the rank's call has an in-place form: two buffers, and a contract that
                        ///< lets them meet.
  std::uint64_t input_begin = 0, output_begin = 0;
};
InPlace in_place_layout(const Shape& shape);

class ResultCheck {
 public:
  ResultCheck(const ProgramSet& set, const Expressions& expressions) : set_(set), expressions_(expressions) {}

  /// Empty, or what is wrong with rank's output after `call`. All ranks of a call that reduces the same
  /// elements must hold equal expressions.
  std::string check(int rank, int call, const Runs& output);

 private:
  /// Elements of the output that come from one place: the input of `source`, or the sum of all inputs.
  struct Origin {
    std::uint64_t count = 0;
    int source = 0;
    std::uint64_t element = 0;
  };
  static constexpr int kSum = -1;
  std::vector<Origin> expected(int rank) const;
  std::string check_run(int rank, int call, const Run& run, const Origin& origin);
  std::string same_tree(int call, const Run& run);

  const ProgramSet& set_;
  const Expressions& expressions_;
  std::vector<Runs> trees_;  ///< all_reduce: by call, the expressions of the first rank that ended.
};

}  // namespace lockstep::internal
