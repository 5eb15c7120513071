// Random trainings through hooks that keep what they did not send, with a Reducer or a ShardedOptimizer:
// steps that fail and are repeated, parameters that are frozen or join, checkpoints that are gone back to,
// also on another number of ranks; and a rank's hook that throws in any of its calls. `ddp_random_hooks_test
// --operations N` runs N of them, from seed M on with `--gtest_random_seed=M`.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>

#include "tests/ddp/hooks/hook_run.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/count_option.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep {
namespace {

/// How a phase ended.
struct Ending {
  std::atomic<int> errors{0};
  std::string threw_in;  // Of the culprit.
  std::map<std::string, Ledger> saved;
};

void expect_right_error(const Error& error, const HookScript& script, std::size_t phase) {
  const std::string what = std::to_string(static_cast<int>(error.code())) + ": " + error.what();
  EXPECT_GT(script.throws_at(phase), 0u) << what;
  EXPECT_EQ(error.culprit(), script.culprit(phase)) << what;
  EXPECT_NE(what.find("hook \"" + script.make_hook()->name() + "\""), std::string::npos) << what;
}

template <typename Trainer>
void play(const HookScript& script, std::size_t phase, const std::string& directory, Ending& ending) {
  const std::map<std::string, Ledger> saved = ending.saved;
  testing::on_ranks(script.ranks(phase), script.transports(phase), [&](Communicator& communicator) {
    SCOPED_TRACE("seed " + std::to_string(script.seed) + ", phase " + std::to_string(phase));
    HookRun<Trainer> run(communicator, script, phase, directory, saved);
    try {
      run.run();
    } catch (const Error& error) {
      ++ending.errors;
      expect_right_error(error, script, phase);
      run.expect_untouched();
    }
    if (communicator.rank() == 0) ending.saved = run.saved();
    if (communicator.rank() == script.culprit(phase)) ending.threw_in = run.threw_in();
  });
}

TEST(RandomHooks, LoseNothingWhateverFails) {
  const auto first = static_cast<std::size_t>(GTEST_FLAG_GET(random_seed));
  const auto trainings = static_cast<std::size_t>(testing::count_option(testing::runs_of(20)));
  std::map<std::string, int> thrown;
  for (std::size_t n = 0; n < trainings && !HasFailure(); ++n) {
    const HookScript script{first + n};
    const internal::TemporaryDirectory directory;
    Ending ending;
    for (std::size_t phase = 0; phase < HookScript::kPhases && !HasFailure(); ++phase) {
      ending.errors = 0;
      ending.threw_in.clear();
      script.sharded() ? play<ShardedOptimizer>(script, phase, directory.path() + "/last", ending)
                       : play<Reducer>(script, phase, directory.path() + "/last", ending);
      ++thrown[ending.threw_in];
      // A good step's end is told by the next one, which may not come.
      if (ending.threw_in.empty()) {
        EXPECT_EQ(ending.errors, 0);
      } else if (ending.threw_in != "end_step(true)") {
        EXPECT_EQ(ending.errors, script.ranks(phase)) << "seed " << script.seed << ", " << ending.threw_in;
      }
    }
  }
  for (const auto& [where, times] : thrown) RecordProperty(where.empty() ? "none" : where, times);
}

}  // namespace
}  // namespace lockstep
