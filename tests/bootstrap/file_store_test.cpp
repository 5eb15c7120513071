// What only the file store promises: no leftovers, survival of writers that die, respect for other people's
// files.
#include "lib/bootstrap/file_store.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "tests/bootstrap/store_fixtures.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/refused_call.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep::internal {
namespace {

using std::chrono::milliseconds;

constexpr uid_t kOrdinaryUser = 12345;

std::unique_ptr<Store> open_or_die(const std::string& path) {
  auto store = open_file_store(path, kSoon, real_env());
  if (!store.ok()) ADD_FAILURE() << store.status().message();
  return store.ok() ? std::move(*store) : nullptr;
}

/// From now on this process sees every file as on a file system without locks.
bool refuse_locks(unsigned error) {
  return lockstep::testing::refuse_call(SYS_fcntl, error, {{1, F_OFD_SETLK}});
}

// Lustre is often mounted without them, and NFS can be.
TEST(FileStore, AFileSystemWithoutLocksIsNamedWithTheWayOut) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/store";
  for (const int error : {ENOSYS, ENOLCK, EOPNOTSUPP, EINVAL}) {
    testing::run_forked(1, [&](int) {
      ASSERT_TRUE(refuse_locks(static_cast<unsigned>(error)));
      EXPECT_EQ(open_file_store(path, kSoon, real_env()).status().message(),
                "cannot lock the rendezvous file " + path + ": its file system has no such locks (" +
                    std::strerror(error) + "): meet at tcp://host:port, or in a file of another file system");
    });
  }
}

TEST(FileStore, ContentEndsWithItsUsers) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/store";
  open_or_die(path)->set_one("x", "1").throw_if_error();
  EXPECT_EQ(directory.entries(), 0u);
  EXPECT_FALSE(open_or_die(path)->get_one("x", milliseconds(0)).ok());
}

TEST(FileStore, LeftoverOfKilledUsersIsStartedAnew) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/store";
  const pid_t child = fork();
  if (child == 0) {
    const auto store = open_file_store(path, kSoon, real_env());
    if (store.ok()) (void)store.value()->set_one("stale", "1");
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(directory.entries(), 1u);
  const auto store = open_or_die(path);
  EXPECT_FALSE(store->get_one("stale", milliseconds(0)).ok());
}

TEST(FileStore, BytesOfAWriterKilledHalfWayAreNeverRead) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/store";
  const auto a = open_or_die(path), b = open_or_die(path);
  ASSERT_TRUE(a->set_one("before", "1").ok());
  // What a writer leaves that dies between its record and the committed length.
  std::ofstream(path, std::ios::app | std::ios::binary) << "half a record";
  ASSERT_TRUE(b->set_one("after", "2").ok());
  EXPECT_EQ(a->get_one("after", kSoon).value(), "2");
  EXPECT_EQ(open_or_die(path)->get_one("before", kSoon).value(), "1");
}

TEST(FileStore, ForeignFilesAreLeftAlone) {
  TemporaryDirectory directory;
  const std::string path = directory.write("thesis.txt", "years of work, not a store");
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  const auto store = open_file_store(path, kSoon, real_env());
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().message(),
            path + " is not a store of lockstep; choose another path for the rendezvous");
  std::string text;
  std::getline(std::ifstream(path), text);
  EXPECT_EQ(text, "years of work, not a store");
}

// Another user may have put it into /tmp, to have a file made or emptied elsewhere.
TEST(FileStore, ALinkIsNotFollowed) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/store", elsewhere = directory.path() + "/elsewhere";
  std::filesystem::create_symlink(elsewhere, path);
  EXPECT_EQ(open_file_store(path, kSoon, real_env()).status().message(),
            "cannot open the rendezvous file " + path +
                ": Too many levels of symbolic links; it may be no link: name the file itself");
  EXPECT_FALSE(std::filesystem::exists(elsewhere));
}

// The job's secret is drawn into it.
TEST(FileStore, FilesOpenToOthersAreRefused) {
  TemporaryDirectory directory;
  const std::string path = directory.write("store", "");
  for (const mode_t mode : {0644, 0660, 0602}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    const auto store = open_file_store(path, kSoon, real_env());
    ASSERT_FALSE(store.ok());
    EXPECT_EQ(store.status().code(), ErrorCode::configuration);
    EXPECT_EQ(store.status().message(),
              "the rendezvous file " + path +
                  " is open to other users, who could read the job's secret in it; remove it, or make it "
                  "yours alone: chmod 600 " +
                  path);
  }
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  EXPECT_TRUE(open_or_die(path)->set_one("x", "1").ok());
}

TEST(FileStore, FilesOfAnotherUserAreRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  TemporaryDirectory directory;
  const std::string path = directory.write("store", "");
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  ASSERT_EQ(chown(path.c_str(), kOrdinaryUser, kOrdinaryUser), 0);
  const auto store = open_file_store(path, kSoon, real_env());
  EXPECT_EQ(store.status().message(),
            "the rendezvous file " + path +
                " belongs to user 12345, this process to user 0: choose another "
                "path, or, for ranks of several users, tcp://host:port and a secret");
}

/// Root may open any file.
void be_an_ordinary_user() {
  const uid_t user = geteuid() == 0 ? kOrdinaryUser : geteuid();
  ASSERT_EQ(setresuid(user, user, user), 0);
}

TEST(FileStore, FilesThatAnotherUserMadeAreNamedAsSuch) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  TemporaryDirectory directory;
  ASSERT_EQ(chmod(directory.path().c_str(), 0777), 0);
  const std::string path = directory.path() + "/store";
  const auto store = open_or_die(path);
  testing::run_forked(1, [&](int) {
    be_an_ordinary_user();
    EXPECT_EQ(open_file_store(path, kSoon, real_env()).status().message(),
              "the rendezvous file " + path +
                  " belongs to user 0, this process to user 12345: choose another path, or, for ranks of "
                  "several users, tcp://host:port and a secret");
  });
}

// One that may be listed, and one that may not.
TEST(FileStore, AFolderThatAnotherUserKeepsIsNamedAsSuch) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be two users";
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/store";
  const auto store = open_or_die(path);
  for (const mode_t rights : {0755, 0700}) {
    ASSERT_EQ(chmod(directory.path().c_str(), rights), 0);
    testing::run_forked(1, [&](int) {
      be_an_ordinary_user();
      const std::string other = rights == 0700 ? path : path + "2";
      EXPECT_EQ(open_file_store(other, kSoon, real_env()).status().message(),
                "cannot open the rendezvous file " + other +
                    ": Permission denied; its folder belongs to user 0 and is closed to user 12345: choose a "
                    "path where this user may make files");
    });
  }
}

TEST(FileStore, TheUserMayUseItWhateverTheUmask) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/store";
  const mode_t usual = umask(0777);
  const auto store = open_or_die(path);
  umask(usual);
  struct stat facts {};
  ASSERT_EQ(stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & ALLPERMS, static_cast<mode_t>(0600));
}

// As one leaves it who died between making it and giving it its rights.
TEST(FileStore, AFileThatItsUserMayNotUseIsNamedWithTheWayOut) {
  TemporaryDirectory directory;
  ASSERT_EQ(chmod(directory.path().c_str(), 0777), 0);
  testing::run_forked(1, [&](int) {
    be_an_ordinary_user();
    const std::string path = directory.write("store", "");
    ASSERT_EQ(chmod(path.c_str(), 0), 0);
    EXPECT_EQ(open_file_store(path, milliseconds(20), real_env()).status().message(),
              "its own user may not use the rendezvous file " + path + "; remove it, or: chmod 600 " + path);
  });
}

// The table does not keep what the file could not take.
TEST(FileStore, AFullDiskLeavesTheStoreAsItWas) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/store";
  const auto a = open_or_die(path), b = open_or_die(path);
  ASSERT_TRUE(a->set_one("before", "1").ok());
  ASSERT_EQ(a->add("count", 1).value(), 1);
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &usual), 0);
  const auto full = static_cast<rlim_t>(std::filesystem::file_size(path));
  signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{full, usual.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  const Status set = a->set_one("lost", "1"), added = a->add("count", 1).status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &usual), 0);
  signal(SIGXFSZ, SIG_DFL);
  for (const Status& status : {set, added}) {
    EXPECT_EQ(status.message(), "cannot write the rendezvous file " + path +
                                    ": File too large; make room there, or name another place in "
                                    "LOCKSTEP_RENDEZVOUS");
  }
  EXPECT_FALSE(a->get_one("lost", milliseconds(0)).ok());
  EXPECT_FALSE(b->get_one("lost", milliseconds(0)).ok());
  EXPECT_EQ(a->add("count", 1).value(), 2);
  EXPECT_EQ(b->add("count", 1).value(), 3);
  EXPECT_EQ(a->get_one("before", milliseconds(0)).value(), "1");
}

TEST(FileStore, MissingDirectoryIsNamed) {
  const auto store = open_file_store("/no/such/directory/store", kSoon, real_env());
  EXPECT_EQ(store.status().message(),
            "cannot open the rendezvous file /no/such/directory/store: No such file or directory; make its "
            "folder first");
}

TEST(FileStore, ADirectoryIsNamedWithTheWayOut) {
  const TemporaryDirectory directory;
  EXPECT_EQ(open_file_store(directory.path(), kSoon, real_env()).status().message(),
            "cannot open the rendezvous file " + directory.path() + ": Is a directory; name a file in it");
}

TEST(FileStore, DamageIsReported) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/store";
  const auto store = open_or_die(path);
  ASSERT_TRUE(store->set_one("x", "1").ok());
  // More is said to be there than is, or less than was.
  for (const std::string_view committed : {"\xff\xff\xff\xff\xff\xff\xff\x7f", "\x18"}) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(16);
    file << committed << std::string(8 - committed.size(), '\0');
    file.close();
    const auto value = store->get_one("x", milliseconds(0));
    EXPECT_EQ(value.status().message(),
              "the store in " + path + " is damaged; remove the file and start all ranks again");
  }
}

TEST(FileStore, AnotherJobsFileAtThePathOfOneThatWasRemovedStays) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/store";
  auto removed = open_or_die(path);
  ASSERT_EQ(unlink(path.c_str()), 0);
  const auto other = open_or_die(path);
  removed.reset();
  EXPECT_EQ(directory.entries(), 1u);
  ASSERT_TRUE(other->set_one("x", "1").ok());
  EXPECT_EQ(open_or_die(path)->get_one("x", milliseconds(0)).value(), "1");
}

TEST(FileStore, ManyProcessesComeAndGo) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/store";
  constexpr int kProcesses = 8;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      bool good = true;
      {
        auto store = open_file_store(path, kSoon, real_env());
        std::vector<std::string> keys;
        for (int k = 0; k < kProcesses; ++k) keys.push_back("rank" + std::to_string(k));
        good = store.ok() && store.value()->set_one(keys[static_cast<std::size_t>(i)], "here").ok() &&
               store.value()->get(keys, kSoon).ok();
      }
      _exit(good ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 1;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(directory.entries(), 0u);
}

}  // namespace
}  // namespace lockstep::internal
