// A job that is killed (SIGKILL) while it saves, at any moment, leaves a whole checkpoint: the one before or
// the new one. Jobs are processes of two ranks; this one never uses the library itself.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <new>
#include <random>
#include <thread>

#include "lockstep/ddp.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kKills = 10;
constexpr std::size_t kElements = 300'000;

/// A tensor that is cut between the ranks and one that is not; all elements are the number of the step.
struct Values {
  std::vector<float> large = std::vector<float>(kElements), small = std::vector<float>(10);
  std::vector<Parameter> list{{"large", DataType::f32, {kElements}, large.data(), nullptr},
                              {"small", DataType::f32, {10}, small.data(), nullptr}};
};

template <typename Body>
void on_two_ranks(Body body) {
  auto group = Communicator::local_group(2);
  std::thread other([&] { body(group[1]); });
  body(group[0]);
  other.join();
}

void save(const fs::path& directory, std::uint64_t step, std::uint64_t last) {
  on_two_ranks([&](Communicator& communicator) {
    Values values;
    for (std::uint64_t s = step; s <= last; ++s) {
      std::fill(values.large.begin(), values.large.end(), static_cast<float>(s));
      std::fill(values.small.begin(), values.small.end(), static_cast<float>(s));
      save_checkpoint(communicator, directory, slices_to_save(values.list, communicator), {.step = s});
    }
  });
}

/// Whether the directory holds a whole checkpoint of one step, not before `step`, which is then that one.
bool is_whole(const fs::path& directory, std::uint64_t& step) {
  bool whole[2] = {};
  on_two_ranks([&](Communicator& communicator) {
    Values values;
    const auto info = load_checkpoint(communicator, directory, slices_to_load(values.list));
    const auto is_of_step = [&](float x) { return x == static_cast<float>(info.step); };
    whole[communicator.rank()] = info.step >= step &&
                                 std::all_of(values.large.begin(), values.large.end(), is_of_step) &&
                                 std::all_of(values.small.begin(), values.small.end(), is_of_step);
  });
  step = read_checkpoint_info(directory).step;
  return whole[0] && whole[1];
}

template <typename Body>
pid_t start(Body body) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  bool good = false;
  try {
    good = body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  ::_exit(good ? 0 : 1);
}

int status_of(pid_t child) {
  int status = -1;
  ::waitpid(child, &status, 0);
  return status;
}

/// What children tell.
struct Told {
  std::uint64_t step = 1;             // Of the checkpoint that was found.
  std::atomic<std::uint64_t> saving;  // The number of the job that has begun to save.
};

TEST(CheckpointKill, LeavesAWholeCheckpointWheneverItStrikes) {
  const internal::TemporaryDirectory root;
  const fs::path directory = root.path() + "/last";
  void* page = ::mmap(nullptr, sizeof(Told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  Told& told = *new (page) Told;
  ASSERT_EQ(status_of(start([&] { return save(directory, 1, 1), true; })), 0);
  std::mt19937 random(20);
  for (std::uint64_t k = 1; k <= kKills; ++k) {
    const pid_t job = start([&] {
      told.saving = k;
      return save(directory, told.step + 1, told.step + 100'000), true;
    });
    while (told.saving != k) ::usleep(1'000);
    // Wherever this lands, in a write, between two files or before the manifest: the same must hold.
    ::usleep(static_cast<useconds_t>(random() % 60'000));
    ::kill(job, SIGKILL);
    EXPECT_EQ(WTERMSIG(status_of(job)), SIGKILL);
    EXPECT_EQ(status_of(start([&] { return is_whole(directory, told.step); })), 0) << "kill " << k;
  }
  EXPECT_EQ(status_of(start([&] { return save(directory, told.step + 1, told.step + 1), true; })), 0);
  const auto files = std::distance(fs::directory_iterator(directory), fs::directory_iterator());
  EXPECT_EQ(files, 4) << "what killed jobs left is cleared by the next save";
  ::munmap(page, sizeof(Told));
}

}  // namespace
}  // namespace lockstep
