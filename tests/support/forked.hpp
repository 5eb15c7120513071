// Real processes for tests: forked first, so that each child sets up the library for itself.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "lib/base/env.hpp"
#include "tests/support/hang_report.hpp"

namespace lockstep::internal::testing {

/// A child that takes longer is killed by its alarm, so that a hang is a failure and not a hang. Nothing here
/// takes a minute; a machine with much else to do gets four, unless a tool that runs the tests gives less.
inline unsigned child_seconds() {
  const char* const given = std::getenv("TEST_CHILD_SECONDS");
  return given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : 240;
}
/// Before that the parent says where a child hangs.
inline std::chrono::seconds hang_after() { return std::chrono::seconds(child_seconds() - 10); }
/// So long may children go on when one of them has failed, for which the others may wait.
inline constexpr std::chrono::seconds kAfterFailure{10};

/// Starts `count` children that run body(rank). A child exits 0, or 1 when one of its expectations failed.
/// The calling process must not have used the library (lockstep refuses to work in a child forked after
/// that).
inline std::vector<pid_t> start_forked(int count, const std::function<void(int rank)>& body) {
  std::vector<pid_t> children;
  for (int rank = 0; rank < count; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(child_seconds());
      try {
        body(rank);
      } catch (const std::exception& error) {  // Else the child would go on with the parent's next test.
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
      ::_exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(pid);
  }
  return children;
}

/// Waits for a child. Its wait status (0 = exited with 0).
inline int wait_for(pid_t child) {
  int status = -1;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

/// Runs body(rank) in `count` processes, all of which must succeed. Says where those hang that do not end,
/// and ends them.
inline void run_forked(int count, const std::function<void(int rank)>& body) {
  const std::vector<pid_t> children = start_forked(count, body);
  for (const pid_t child : await_ends(children, hang_after(), kAfterFailure)) {
    print_stacks(child);
    ::kill(child, SIGKILL);
  }
  for (int rank = 0; rank < count; ++rank) {
    EXPECT_EQ(wait_for(children[static_cast<std::size_t>(rank)]), 0) << "rank " << rank;
  }
}

/// A T in memory shared with children that are forked later, zero at first.
template <typename T>
class Shared {
 public:
  Shared()
      : value_(new (::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))
                   T()) {}
  ~Shared() { ::munmap(value_, sizeof(T)); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;
  T* operator->() const { return value_; }
  T& operator*() const { return *value_; }

 private:
  T* value_;
};

/// Polls until `condition()` holds, no longer than a child may take: a parent has no alarm.
template <typename Condition>
void wait_until(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(child_seconds());
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) throw std::runtime_error("what is waited for does not come");
    sleep_for(std::chrono::microseconds(200));
  }
}

/// Where ranks leave each other short texts, and meet.
class Board {
 public:
  static constexpr int kRanks = 16;

  void post(int rank, const std::string& text) {
    std::strncpy(note_[rank].text, text.c_str(), sizeof note_[rank].text - 1);
    note_[rank].posted.store(true);
  }
  std::string read(int rank) {
    wait_until([&] { return note_[rank].posted.load(); });
    return note_[rank].text;
  }
  void meet(int ranks) {
    const int turn = arrived_.fetch_add(1) / ranks;
    wait_until([&] { return arrived_.load() >= (turn + 1) * ranks; });
  }

 private:
  struct Note {
    std::atomic<bool> posted{false};
    char text[256] = "";
  };
  Note note_[kRanks];
  std::atomic<int> arrived_{0};
};

}  // namespace lockstep::internal::testing
