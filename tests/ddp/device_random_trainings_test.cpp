// Random trainings of many steps (training_script.hpp) on devices: what a DeviceReducer gives is what the
// host's Reducer gives with the same options, bit for bit, and without compression what a formula says.
// `TEST_RUN=device_sync ddp_device_random_trainings_test --operations N` runs N of them.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/ddp/device_side.hpp"
#include "tests/ddp/forked_twins.hpp"
#include "tests/ddp/host_side.hpp"
#include "tests/ddp/scripted_training.hpp"
#include "tests/device/communicator/device_world.hpp"
#include "tests/support/count_option.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/test_run.hpp"

namespace lockstep {
namespace {

using testing::DeviceSide;
using testing::HostSide;
using testing::kTrainers;
using testing::Script;
using testing::ScriptedTraining;

const char* const kMode = testing::test_run("host_sync");
constexpr std::size_t kTrainingSteps = 6;
constexpr std::uint64_t kTrainings = 20;

DeviceReducerOptions options_of(const Script& script, int rank) {
  DeviceReducerOptions options{.bucket_bytes = script.bucket_bytes(),
                               .first_bucket_bytes = script.first_bucket_bytes()};
  options.weighted = script.weighted();
  options.find_unused = script.finds_unused();
  options.static_graph = script.is_static();
  options.undo = script.draw_of(2, 40, static_cast<std::size_t>(rank)) == 0;
  options.check_first = script.checks_first();
  options.check_finite = true;
  if (script.moves()) options.gradients_moved = [] {};
  options.check_replicas_every = script.draw_of(3, 41);
  options.compression = static_cast<DeviceCompression>(script.draw_of(6, 42));
  options.block = 4 << script.draw_of(5, 43);
  return options;
}

/// A training on the device and one on the host.
class Both {
 public:
  Both(Communicator& host, DeviceCommunicator& device, const Script& script)
      : Both(host, device, script, options_of(script, host.rank())) {}

  void step(std::size_t step) {
    there_.step(step);
    here_.step(step);
    if (script_.threads() && script_.moves()) return;  // By which the order of marks is not the same.
    ASSERT_EQ(there_.side().plan(), here_.side().plan()) << there_.where(step, 0, 0);
    for (std::size_t i = 0; i < here_.parameters(); ++i) {
      if (here_.is_frozen(i)) continue;
      ASSERT_EQ(std::memcmp(there_.side().gradient(i), here_.side().gradient(i), here_.bytes(i)), 0)
          << there_.where(step, i, 0);
    }
  }

 private:
  Both(Communicator& host, DeviceCommunicator& device, const Script& script,
       const DeviceReducerOptions& options)
      : script_(script),
        there_(script, host.rank(), host, device, options, tolerance(options)),
        here_(script, host.rank(), host, testing::same_options(options), tolerance(options)) {}
  static std::optional<double> tolerance(const DeviceReducerOptions& options) {
    return options.compression == DeviceCompression::none ? std::optional(1e-3) : std::nullopt;
  }

  const Script script_;
  ScriptedTraining<DeviceSide> there_;
  ScriptedTraining<HostSide> here_;
};

TEST(DeviceRandomTrainings, OfTwoReducersByTurnsGiveWhatTheHostGives) {
  testing::use_host_backend(kMode);
  const std::uint64_t trainings = testing::count_option(testing::runs_of(kTrainings));
  testing::on_forked_ranks(kTrainers, [&](Communicator& host) {
    DeviceCommunicator device(host, testing::device_of(host.rank()));
    internal::testing::must(testing::backend().select(device.device()));
    for (std::uint64_t seed = 0; seed < trainings && !::testing::Test::HasFailure(); ++seed) {
      Both one(host, device, {2 * seed}), other(host, device, {2 * seed + 1});
      for (std::size_t step = 0; step < kTrainingSteps && !::testing::Test::HasFailure(); ++step) {
        one.step(step);
        other.step(step);
      }
    }
    device.finalize();
  });
}

}  // namespace
}  // namespace lockstep
