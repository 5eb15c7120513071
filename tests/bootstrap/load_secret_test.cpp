// Where a job's secret comes from.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "lib/bootstrap/launch.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep::internal {
namespace {

TEST(Secret, OptionsThenVariableThenFile) {
  TemporaryDirectory directory;
  const std::string path = directory.write("secret", "from file\n");
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  Environment environment{{"LOCKSTEP_SECRET_FILE", path}};
  EXPECT_EQ(load_secret({}, {}).value(), "");
  EXPECT_EQ(load_secret({}, environment).value(), "from file");
  environment["LOCKSTEP_SECRET"] = "from variable";
  EXPECT_EQ(load_secret({}, environment).value(), "from variable");
  InitOptions options;
  options.secret = "from options";
  EXPECT_EQ(load_secret(options, environment).value(), "from options");
}

TEST(Secret, TheEndOfItsLineIsNotOfIt) {
  const TemporaryDirectory directory;
  const std::string longest(4096, 's');
  for (const std::string& secret : {std::string("secret"), longest}) {
    for (const char* end : {"", "\n", "\r\n"}) {
      if (secret == longest && *end != '\0') continue;
      const std::string path = directory.write("secret", secret + end);
      ASSERT_EQ(chmod(path.c_str(), 0600), 0);
      EXPECT_EQ(load_secret({}, {{"LOCKSTEP_SECRET_FILE", path}}).value(), secret);
    }
  }
}

TEST(Secret, FilesThatOthersMayReadAreRefused) {
  TemporaryDirectory directory;
  const std::string path = directory.write("secret", "secret");
  for (const mode_t mode : {0640, 0604, 0660}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    EXPECT_EQ(load_secret({}, {{"LOCKSTEP_SECRET_FILE", path}}).status().message(),
              "LOCKSTEP_SECRET_FILE=" + path +
                  " can be read by other users; make it yours alone: chmod 600 " + path);
  }
  ASSERT_EQ(chmod(path.c_str(), 0400), 0);
  EXPECT_TRUE(load_secret({}, {{"LOCKSTEP_SECRET_FILE", path}}).ok());
}

TEST(Secret, AFileOfAnotherUserIsRefusedAndNotCalledReadable) {
  TemporaryDirectory directory;
  const std::string path = directory.write("secret", "secret");
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  const uid_t other = geteuid() + 1;
  if (chown(path.c_str(), other, static_cast<gid_t>(-1)) != 0) GTEST_SKIP() << "only root gives files away";
  EXPECT_EQ(load_secret({}, {{"LOCKSTEP_SECRET_FILE", path}}).status().message(),
            "LOCKSTEP_SECRET_FILE=" + path + " belongs to user " + std::to_string(other) +
                ", and this process runs as user " + std::to_string(geteuid()) +
                "; give it a copy of its own, with mode 0600");
}

// Into which nobody writes: to open it would last for ever.
TEST(Secret, APipeIsRefused) {
  const TemporaryDirectory directory;
  const std::string path = directory.path() + "/pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  testing::run_forked(1, [&](int) {
    alarm(20);
    EXPECT_EQ(
        load_secret({}, {{"LOCKSTEP_SECRET_FILE", path}}).status().message(),
        "LOCKSTEP_SECRET_FILE=" + path + " is no ordinary file; write the secret to one, with mode 0600");
  });
}

TEST(Secret, EmptyOverlongAndMissingFilesAreRefused) {
  TemporaryDirectory directory;
  const std::string path = directory.path() + "/secret";
  const Environment environment{{"LOCKSTEP_SECRET_FILE", path}};
  EXPECT_EQ(load_secret({}, environment).status().message(),
            "cannot open LOCKSTEP_SECRET_FILE=" + path + ": No such file or directory");
  for (const std::size_t size : {0u, 5000u}) {
    directory.write("secret", std::string(size, 's'));
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
    EXPECT_EQ(load_secret({}, environment).status().message(),
              "LOCKSTEP_SECRET_FILE=" + path + " must hold between 1 and 4096 bytes");
  }
}

}  // namespace
}  // namespace lockstep::internal
