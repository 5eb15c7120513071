// Disks that fail while a checkpoint is saved: whatever fails and when, one whole checkpoint is there, and
// every rank has the same error.
#include <dirent.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <limits>
#include <optional>

#include "tests/ddp/sharded/checkpoint_world.hpp"
#include "tests/support/thrown_by.hpp"

namespace {

constexpr int kNever = std::numeric_limits<int>::max();
std::atomic<int> g_directories_synced_until_error{kNever};
std::atomic<int> g_entries_read_until_error{kNever};
std::atomic<int> g_entries_read_until_end{kNever};
std::atomic<int> g_locks_until_error{kNever};

bool is_directory(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace

// In place of the system's, whose disk does not fail.
extern "C" int fsync(int fd) {
  static const auto sync = reinterpret_cast<decltype(&fsync)>(dlsym(RTLD_NEXT, "fsync"));
  if (!is_directory(fd) || g_directories_synced_until_error.fetch_sub(1) > 0) return sync(fd);
  errno = EIO;
  return -1;
}

extern "C" __attribute__((visibility("default"))) dirent* readdir(DIR* directory) {
  static const auto read = reinterpret_cast<decltype(&readdir)>(dlsym(RTLD_NEXT, "readdir"));
  if (g_entries_read_until_end.fetch_sub(1) <= 0) return nullptr;
  if (g_entries_read_until_error.fetch_sub(1) > 0) return read(directory);
  errno = EIO;
  return nullptr;
}

extern "C" int flock(int fd, int operation) noexcept {
  static const auto lock = reinterpret_cast<decltype(&flock)>(dlsym(RTLD_NEXT, "flock"));
  if (g_locks_until_error.fetch_sub(1) > 0) return lock(fd, operation);
  errno = ENOLCK;
  return -1;
}

namespace lockstep {
namespace {

using testing::Directory;
using testing::Net;
using testing::on_ranks;
using testing::save;
using testing::thrown_by;

/// While it lives, the call after `calls` good ones fails, and so do those that follow.
class FailsAfter {
 public:
  FailsAfter(std::atomic<int>& counter, int calls) : counter_(counter) { counter_ = calls; }
  ~FailsAfter() { counter_ = kNever; }
  FailsAfter(const FailsAfter&) = delete;
  FailsAfter& operator=(const FailsAfter&) = delete;

 private:
  std::atomic<int>& counter_;
};

/// The error of a save of 2, the same on both ranks, into a directory that holds 1.
std::string error_of_second_save(const Directory& directory, std::atomic<int>& counter, int calls) {
  save(2, directory, 1);
  std::string errors[2];
  on_ranks(2, "auto", [&](Communicator& communicator) {
    Net net;
    net.fill(2);
    communicator.barrier();
    std::optional<FailsAfter> failing;
    if (communicator.rank() == 0) failing.emplace(counter, calls);
    communicator.barrier();
    const Error error = thrown_by([&] {
      save_checkpoint(communicator, directory.checkpoint(), slices_to_save(net.list, communicator),
                      {.step = 13});
    });
    EXPECT_EQ(error.code(), ErrorCode::system) << error.what();
    errors[communicator.rank()] = error.what();
    communicator.barrier();
  });
  EXPECT_EQ(errors[0], errors[1]);
  return errors[0];
}

void expect_loads(const Directory& directory, std::uint64_t step, float from) {
  on_ranks(2, "auto", [&](Communicator& communicator) {
    Net net, expected;
    expected.fill(from);
    EXPECT_EQ(load_checkpoint(communicator, directory.checkpoint(), slices_to_load(net.list)).step, step);
    EXPECT_TRUE(net == expected);
  });
}

TEST(CheckpointFaults, ADataFileThatMayNotLastLeavesTheCheckpointBefore) {
  const Directory directory;
  const std::string error = error_of_second_save(directory, g_directories_synced_until_error, 0);
  EXPECT_NE(error.find("cannot bring to the disk"), std::string::npos) << error;
  EXPECT_EQ(directory.files(),
            (std::vector<std::string>{"g1-rank0of2.bin", "g1-rank1of2.bin", "manifest.json"}));
  expect_loads(directory, 12, 1);
}

/// Both ranks' files are on the disk, the new manifest counts already: nothing that it names may go, nor what
/// the one before names, which may come back when the power fails.
TEST(CheckpointFaults, AManifestThatMayNotLastLeavesBothCheckpoints) {
  const Directory directory;
  const std::string error = error_of_second_save(directory, g_directories_synced_until_error, 2);
  EXPECT_NE(error.find("the new checkpoint is in place, but perhaps not on the disk"), std::string::npos)
      << error;
  EXPECT_EQ(directory.files(),
            (std::vector<std::string>{"g1-rank0of2.bin", "g1-rank1of2.bin", "g2-rank0of2.bin",
                                      "g2-rank1of2.bin", "manifest.json"}));
  expect_loads(directory, 13, 2);
  save(2, directory, 3);
  EXPECT_EQ(directory.files().size(), 3u);
}

TEST(CheckpointFaults, WhereThereAreNoLocksItIsSavedWithout) {
  const Directory directory;
  const FailsAfter failing(g_locks_until_error, 0);
  save(2, directory, 1);
  save(2, directory, 2);
  expect_loads(directory, 12, 2);
}

/// Of two jobs that write one file neither could tell what is in it.
TEST(CheckpointFaults, WhereThereAreNoLocksAFileOfAnotherJobIsNotWrittenOver) {
  const Directory directory;
  save(2, directory, 1);
  const std::string other = directory.file("g1-rank1of2.bin.part");
  std::ofstream(other) << "of another job";
  std::filesystem::remove(directory.file("g1-rank1of2.bin"));
  const FailsAfter unseen(g_entries_read_until_end, 0);  // As if it came just after rank 0 has looked.
  std::filesystem::remove(directory.file("g1-rank0of2.bin"));
  on_ranks(2, "auto", [&](Communicator& communicator) {
    Net net;
    const Error error = thrown_by([&] {
      save_checkpoint(communicator, directory.checkpoint(), slices_to_save(net.list, communicator),
                      {.step = 13});
    });
    EXPECT_EQ(error.culprit(), 1);
    EXPECT_NE(std::string(error.what()).find("another job saves to this directory"), std::string::npos)
        << error.what();
  });
  EXPECT_EQ(std::filesystem::file_size(other), 14u);
}

/// Generations that are not seen would be given, and so written over, again.
TEST(CheckpointFaults, ADirectoryThatCannotBeListedIsAnErrorOnAllRanks) {
  for (const int entries : {0, 3}) {
    const Directory directory;
    const std::string error = error_of_second_save(directory, g_entries_read_until_error, entries);
    EXPECT_NE(error.find("rank 0: cannot list " + directory.checkpoint()), std::string::npos) << error;
    EXPECT_EQ(directory.files(),
              (std::vector<std::string>{"g1-rank0of2.bin", "g1-rank1of2.bin", "manifest.json"}));
    expect_loads(directory, 12, 1);
  }
}

}  // namespace
}  // namespace lockstep
