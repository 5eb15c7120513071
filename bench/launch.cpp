#include "bench/launch.hpp"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <new>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace lockstep::bench {
namespace {

int fail(int rank, const char* why, SharedPages* pages) {
  std::cerr << std::string(program_invocation_short_name) + ": rank " + std::to_string(rank) + ": " + why +
                   "\n";
  if (pages != nullptr) pages->fail();
  return 1;
}

// Calls `body`; an exception becomes one line on standard error and status 1, and ends the other ranks' waits
// on the board.
int run_rank(int rank, const std::function<int()>& body, SharedPages* pages) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(rank, "there is not enough memory: choose smaller sizes, or fewer ranks", pages);
  } catch (const std::exception& error) {
    return fail(rank, error.what(), pages);
  }
}

// A folder only this user can enter, for the ranks to meet in.
class MeetingPlace {
 public:
  MeetingPlace() {
    std::string path = absolute(std::filesystem::temp_directory_path() / "lockstep-bench-XXXXXX").string();
    if (mkdtemp(path.data()) == nullptr) {
      throw std::system_error(errno, std::generic_category(), "cannot create " + path);
    }
    path_ = path;
  }
  ~MeetingPlace() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  MeetingPlace(const MeetingPlace&) = delete;
  MeetingPlace& operator=(const MeetingPlace&) = delete;
  std::string url() const { return "file://" + path_ + "/store"; }

 private:
  std::string path_;
};

// A signal to the parent ends the children first, so that their folder can be removed. Signals are held back
// from before the first fork on and taken one by one, so that none is lost while ranks start.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&held_);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&held_, number);
    signal(SIGCHLD, SIG_DFL);  // Where it is ignored children end unseen.
    sigset_t before;
    sigprocmask(SIG_BLOCK, &held_, &before);
    static const sigset_t usual = before;  // Of the first time: they stay held, for the next ranks.
    usual_ = usual;
  }
  void release() const { sigprocmask(SIG_SETMASK, &usual_, nullptr); }
  int next() const {
    int number = -1;
    while ((number = sigwaitinfo(&held_, nullptr)) < 0 && errno == EINTR) {
    }
    return number;
  }

 private:
  sigset_t held_{}, usual_{};
};

int exit_status(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

using Children = std::map<pid_t, int>;  // The rank of each that has not ended.

// Of a process that could not say so itself. Who interrupts a benchmark knows why its ranks end.
void tell_of_signal(int rank, int status) {
  const std::set<int> asked{SIGINT, SIGTERM, SIGHUP};
  if (!WIFSIGNALED(status) || asked.contains(WTERMSIG(status))) return;
  const std::string number = std::to_string(WTERMSIG(status));
  std::cerr << std::string(program_invocation_short_name) + ": rank " + std::to_string(rank) +
                   " was ended by signal " + number + " (" + strsignal(WTERMSIG(status)) + ")\n";
}

// Those that have ended. Gives the first status of them that is not 0.
int bury(Children& children, const std::function<void()>& on_failure) {
  int result = 0, status = 0;
  for (pid_t child; (child = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (const auto ended = children.extract(child)) tell_of_signal(ended.mapped(), status);
    if (status != 0) on_failure();
    if (result == 0) result = exit_status(status);
  }
  return result;
}

// Waits for all children. A signal ends them.
int reap(Children& children, const HeldSignals& signals, const std::function<void()>& on_failure) {
  int result = 0, stopped_by = 0;
  while (!children.empty()) {
    const int number = signals.next();
    if (number != SIGCHLD) {
      stopped_by = number;
      for (const auto& [child, rank] : children) kill(child, SIGTERM);
    }
    const int first = bury(children, on_failure);
    if (result == 0) result = first;
  }
  return stopped_by != 0 ? 128 + stopped_by : result;
}

int launch_threads(const Options& options, const RankMain& body) {
  SharedPages pages(options.threads);
  std::vector<Communicator> group = Communicator::local_group(options.threads, options.transport);
  std::vector<int> statuses(group.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < group.size(); ++rank) {
    threads.emplace_back([&, rank] {
      statuses[rank] = run_rank(
          static_cast<int>(rank),
          [&] {
            const int result = body(group[rank], *pages.board(static_cast<int>(rank)));
            group[rank].finalize();
            return result;
          },
          &pages);
      if (statuses[rank] != 0) group[rank].abort("this rank of lockstep-bench failed");
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto failed = std::find_if(statuses.begin(), statuses.end(), [](int status) { return status != 0; });
  return failed == statuses.end() ? 0 : *failed;
}

int launch_here(const Options& options, const RankMain& body) {
  InitOptions init;
  init.transports = options.transport;
  Communicator communicator = Communicator::create(init);
  const auto board = make_collective_board(communicator);
  return run_rank(
      communicator.rank(),
      [&] {
        const int result = body(communicator, *board);
        communicator.finalize();
        return result;
      },
      nullptr);
}

}  // namespace

int run_in_processes(int ranks, const std::function<int(int)>& rank_main,
                     const std::function<void()>& on_failure) {
  const HeldSignals signals;
  Children children;
  for (int rank = 0; rank < ranks; ++rank) {
    std::cout.flush();
    const pid_t child = fork();
    if (child < 0) {
      const int error = errno;
      for (const auto& [other, its_rank] : children) kill(other, SIGTERM);
      reap(children, signals, on_failure);
      throw std::system_error(error, std::generic_category(), "cannot start rank " + std::to_string(rank));
    }
    if (child > 0) {
      children.emplace(child, rank);
      continue;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signals.release();
    const int status = rank_main(rank);
    std::cout.flush();
    _exit(status);  // what the parent made is the parent's to remove
  }
  return reap(children, signals, on_failure);
}

int launch_processes(const ProcessGroup& group, const RankMain& body) {
  SharedPages pages(group.ranks);
  const MeetingPlace place;
  const auto join_and_run = [&](int rank) {
    if (group.enter) group.enter(rank);
    InitOptions init;
    init.rank = rank;
    init.world_size = group.ranks;
    init.rendezvous = place.url();
    init.transports = group.transport;
    init.secret = group.secret;
    Communicator communicator = Communicator::create(init);
    const int result = body(communicator, *pages.board(rank));
    communicator.finalize();
    return result;
  };
  return run_in_processes(
      group.ranks,
      [&](int rank) {
        return run_rank(
            rank, [&] { return join_and_run(rank); }, &pages);
      },
      [&] { pages.fail(); });
}

int launch(const Options& options, const RankMain& body) {
  if (options.ranks > 0) return launch_processes({options.ranks, options.transport, {}, {}}, body);
  if (options.threads > 0) return launch_threads(options, body);
  return launch_here(options, body);
}

}  // namespace lockstep::bench
