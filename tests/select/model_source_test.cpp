// Announcing and adopting a model within one process.
#include "collectives/select/model_source.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tests/support/temporary_directory.hpp"

namespace lockstep::internal {
namespace {

constexpr uid_t kNobody = 65534;

class ModelSource : public ::testing::Test {
 protected:
  ModelSource() {
    setenv("XDG_CONFIG_HOME", directory_.path().c_str(), 1);
    setenv("LOCKSTEP_LOG", "off", 1);
    unsetenv("LOCKSTEP_TUNING");
  }
  ~ModelSource() override { unsetenv("LOCKSTEP_TUNING"); }

  /// A model that is told apart by its overrides.
  static std::string text_with(const std::string& overrides) {
    CostModel model = *builtin_model();
    model.overrides = overrides;
    return to_json(model);
  }

  const TemporaryDirectory directory_;
};

TEST_F(ModelSource, TheBuiltInModelWhenNothingIsThere) {
  const auto shared = adopt_model(announce_model());
  ASSERT_TRUE(shared.ok()) << shared.status().message();
  EXPECT_EQ(shared.value().source, "built-in");
  EXPECT_EQ(shared.value().model, builtin_model());
}

TEST_F(ModelSource, AFileThatIsThereButCannotBeOpenedIsAnError) {
  const auto path = std::filesystem::path(directory_.path()) / "lockstep" / "tuning.json";
  std::filesystem::create_directories(path.parent_path());
  std::filesystem::create_symlink(path, path);  // To itself: not even root can open it.
  const auto shared = adopt_model(announce_model());
  ASSERT_FALSE(shared.ok());
  EXPECT_NE(shared.status().message().find(path.string()), std::string::npos) << shared.status().message();
}

/// As a user who is not root, and whose HOME is closed to it.
bool starts_with_the_built_in_model() {
  if (geteuid() == 0 && setuid(kNobody) != 0) return false;
  const auto shared = adopt_model(announce_model());
  return shared.ok() && shared.value().source == "built-in";
}

TEST_F(ModelSource, TheBuiltInModelWhereTheUsersHomeIsClosedToIt) {
  const auto closed = std::filesystem::path(directory_.path()) / "home";
  std::filesystem::create_directory(closed);
  std::filesystem::permissions(closed, std::filesystem::perms::none);
  setenv("XDG_CONFIG_HOME", closed.c_str(), 1);
  const pid_t child = fork();
  if (child == 0) _exit(starts_with_the_built_in_model() ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(ModelSource, ADirectoryIsNotTakenForAnEmptyFile) {
  setenv("LOCKSTEP_TUNING", directory_.path().c_str(), 1);
  const auto shared = adopt_model(announce_model());
  ASSERT_FALSE(shared.ok());
  EXPECT_NE(shared.status().message().find(directory_.path() + ": it is no ordinary file"), std::string::npos)
      << shared.status().message();
}

TEST_F(ModelSource, TheMachineIsTheSameForAProcessThatMayUseOneCore) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  CPU_ZERO(&one);
  for (int core = 0; CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  }
  const MachineFingerprint machine = this_machine();
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(this_machine(), machine);
  sched_setaffinity(0, sizeof before, &before);
}

// A file that was measured with one core of several is not this machine's, but for a process that has one.
TEST_F(ModelSource, WarnsOfAFileThatWasMeasuredWithOtherCores) {
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  if (CPU_COUNT(&before) == 1) GTEST_SKIP() << "one core is all";
  CPU_ZERO(&one);
  for (int core = 0; CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  }
  unsetenv("LOCKSTEP_LOG");
  const auto warns_of = [&](int cores) {
    CostModel model = *builtin_model();
    model.fingerprint = this_machine();
    model.fingerprint->cores = cores;
    setenv("LOCKSTEP_TUNING", directory_.write("cores.json", to_json(model)).c_str(), 1);
    ::testing::internal::CaptureStderr();
    announce_model();
    return ::testing::internal::GetCapturedStderr().find("another machine") != std::string::npos;
  };
  EXPECT_FALSE(warns_of(this_machine().cores));
  EXPECT_FALSE(warns_of(CPU_COUNT(&before)));
  EXPECT_TRUE(warns_of(1));
  EXPECT_TRUE(warns_of(this_machine().cores + 1));
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_FALSE(warns_of(1));
  EXPECT_FALSE(warns_of(this_machine().cores));
  sched_setaffinity(0, sizeof before, &before);
}

TEST_F(ModelSource, TheUsersFileAndBeforeItTheVariable) {
  const std::string users = directory_.write("lockstep/tuning.json", text_with("reduce:*=ring"));
  auto shared = adopt_model(announce_model());
  ASSERT_TRUE(shared.ok()) << shared.status().message();
  EXPECT_EQ(shared->source, users);
  EXPECT_EQ(shared->model->overrides, "reduce:*=ring");
  const std::uint64_t hash = shared->hash;

  setenv("LOCKSTEP_TUNING", directory_.write("other.json", text_with("reduce:*=direct")).c_str(), 1);
  shared = adopt_model(announce_model());
  ASSERT_TRUE(shared.ok()) << shared.status().message();
  EXPECT_EQ(shared->model->overrides, "reduce:*=direct");
  EXPECT_NE(shared->hash, hash);

  setenv("LOCKSTEP_TUNING", "built-in", 1);
  EXPECT_EQ(adopt_model(announce_model())->source, "built-in");
}

TEST_F(ModelSource, AFileThatCannotBeUsedIsAnErrorWithTheNextStep) {
  for (const std::string& path : {directory_.path() + "/absent.json", directory_.write("empty.json", ""),
                                  directory_.write("broken.json", "{\"schema\": 1"),
                                  directory_.write("large.json", std::string(kMaxModelBytes + 1, ' '))}) {
    setenv("LOCKSTEP_TUNING", path.c_str(), 1);
    const auto shared = adopt_model(announce_model());
    ASSERT_FALSE(shared.ok()) << path;
    EXPECT_EQ(shared.status().code(), ErrorCode::configuration);
    EXPECT_EQ(shared.status().culprit(), 0);
    for (const std::string& word : {path, std::string("--calibrate")})
      EXPECT_NE(shared.status().message().find(word), std::string::npos) << shared.status().message();
  }
}

TEST_F(ModelSource, ATextOtherThanTheAnnouncedOneIsRefused) {
  setenv("LOCKSTEP_TUNING", directory_.write("model.json", text_with("reduce:*=ring")).c_str(), 1);
  const std::string announcement = announce_model();
  const std::size_t at = announcement.find("reduce:*=ring");
  ASSERT_NE(at, std::string::npos);
  std::string changed = announcement;
  changed.replace(at, 13, "reduce:*=tree");
  const auto shared = adopt_model(changed);
  ASSERT_FALSE(shared.ok());
  EXPECT_NE(shared.status().message().find("another cost model than rank 0"), std::string::npos)
      << shared.status().message();
  for (std::size_t cut = 0; cut < 40; ++cut) EXPECT_FALSE(adopt_model(announcement.substr(0, cut)).ok());
}

}  // namespace
}  // namespace lockstep::internal
