// Random trainings of many steps (training_script.hpp), against a formula, of two reducers that take turns on
// one communicator. `ddp_random_trainings_test --operations N` runs N of them.
#include <gtest/gtest.h>

#include "tests/ddp/host_side.hpp"
#include "tests/ddp/mode_world.hpp"
#include "tests/ddp/scripted_training.hpp"
#include "tests/support/count_option.hpp"
#include "tests/support/sanitized.hpp"

namespace lockstep {
namespace {

using testing::HostSide;
using testing::kTrainers;
using testing::Script;

constexpr std::size_t kTrainingSteps = 8;
constexpr unsigned kTrainings = 40;

ReducerOptions options_of(const Script& script, int rank) {
  ReducerOptions options{.bucket_bytes = script.bucket_bytes(),
                         .first_bucket_bytes = script.first_bucket_bytes()};
  options.gradients_as_views = script.views(rank);
  if (script.moves()) options.gradients_moved = [] {};
  options.find_unused = script.finds_unused();
  options.static_graph = script.is_static();
  options.weighted = script.weighted();
  options.overlap_forward = script.overlaps();
  options.check_finite = true;
  if (script.says_check_first()) options.check_first = script.checks_first();
  if (script.hook()) options.hook = all_reduce_hook();
  return options;
}

class Training : public testing::ScriptedTraining<HostSide> {
 public:
  Training(Communicator& communicator, const Script& script)
      : ScriptedTraining(script, communicator.rank(), communicator, options_of(script, communicator.rank()),
                         1e-3) {}
};

TEST(RandomTrainings, OfTwoReducersByTurnsGiveTheResultOfOneProcess) {
  const auto trainings = static_cast<unsigned>(testing::count_option(testing::runs_of(kTrainings)));
  for (unsigned seed = 0; seed < trainings && !::testing::Test::HasFailure(); ++seed) {
    testing::on_ranks(kTrainers, seed % 5 == 1 ? "tcp" : "shm", [&](Communicator& communicator) {
      Training one(communicator, {2 * seed}), other(communicator, {2 * seed + 1});
      for (std::size_t step = 0; step < kTrainingSteps && !::testing::Test::HasFailure(); ++step) {
        one.step(step);
        other.step(step);
      }
    });
  }
}

}  // namespace
}  // namespace lockstep
