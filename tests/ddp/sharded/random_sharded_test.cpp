// Random trainings with a ShardedOptimizer against a formula: steps that fail, are left out or repeated,
// parameters that join, checkpoints that are gone back to, by any number of ranks and in another stage; and
// ranks that abort, or whose optimizer throws.
// `ddp_random_sharded_test --operations N` runs N of them, from seed M on with `--gtest_random_seed=M`.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>

#include "tests/ddp/sharded/sharded_run.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/count_option.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep {
namespace {

void expect_right_error(const Error& error, const ShardedScript& script, std::size_t phase) {
  const std::string what = std::to_string(static_cast<int>(error.code())) + ": " + error.what();
  EXPECT_NE(script.end(phase), End::good) << what;
  EXPECT_EQ(error.culprit(), script.culprit(phase)) << what;
  const bool threw = script.end(phase) == End::optimizer_threw;
  EXPECT_NE(what.find(threw ? "out of patience" : "no tea"), std::string::npos) << what;
}

/// Returns what checkpoints may hold by now.
std::map<std::string, Reference> play(const ShardedScript& script, std::size_t phase,
                                      const std::string& directory,
                                      const std::map<std::string, Reference>& saved) {
  std::map<std::string, Reference> next;
  std::atomic<int> errors{0}, ended{0};
  testing::on_ranks(script.ranks(phase), script.transports(phase), [&](Communicator& communicator) {
    SCOPED_TRACE("seed " + std::to_string(script.seed) + ", phase " + std::to_string(phase));
    ShardedRun run(communicator, script, phase, directory, saved);
    try {
      run.run();
    } catch (const Error& error) {
      ++errors;
      expect_right_error(error, script, phase);
      run.expect_untouched();
    }
    ended += run.has_ended_it() ? 1 : 0;
    if (communicator.rank() == 0) next = run.saved();
  });
  EXPECT_EQ(errors, ended > 0 ? script.ranks(phase) : 0) << "seed " << script.seed;
  return next;
}

TEST(RandomSharded, GoesOnFromCheckpointsAsOneProcessWould) {
  const auto first = static_cast<std::size_t>(GTEST_FLAG_GET(random_seed));
  const auto trainings = static_cast<std::size_t>(testing::count_option(testing::runs_of(15)));
  for (std::size_t n = 0; n < trainings && !HasFailure(); ++n) {
    const ShardedScript script{first + n};
    const internal::TemporaryDirectory directory;
    std::map<std::string, Reference> saved;
    for (std::size_t phase = 0; phase < ShardedScript::kPhases && !HasFailure(); ++phase)
      saved = play(script, phase, directory.path() + "/last", saved);
  }
}

}  // namespace
}  // namespace lockstep
