#include "tests/device/communicator/crew.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "tests/support/forked.hpp"

namespace lockstep::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kOurs = "LOCKSTEP_";

/// One message over a member's socket; the answer is a byte, or the end of the connection.
struct Order {
  CrewTask task;
  int rank, world;
  char store[256];
  char environment[4096];  ///< NAME=value, each ended by a zero; an empty one is the last.
};

std::vector<std::string> our_variables() {
  std::vector<std::string> found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::string_view(*entry).starts_with(kOurs)) found.emplace_back(*entry);
  }
  return found;
}

Order order_of(CrewTask task, int rank, int world, const std::string& store) {
  Order order{task, rank, world, {}, {}};
  store.copy(order.store, sizeof order.store - 1);
  std::size_t used = 0;
  for (const std::string& one : our_variables()) {
    if (used + one.size() + 2 > sizeof order.environment)
      throw std::runtime_error("the environment is large");
    one.copy(order.environment + used, one.size());
    used += one.size() + 1;
  }
  return order;
}

void take_over_environment(const char* environment) {
  for (const std::string& one : our_variables()) ::unsetenv(one.substr(0, one.find('=')).c_str());
  for (const char* entry = environment; *entry != '\0'; entry += std::strlen(entry) + 1) {
    const std::string text(entry);
    const std::size_t equals = text.find('=');
    ::setenv(text.substr(0, equals).c_str(), text.c_str() + equals + 1, 1);
  }
}

/// A child does one order after the other, until its parent is gone or an expectation has failed.
[[noreturn]] void obey(int orders) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Order order;
  while (::recv(orders, &order, sizeof order, 0) == static_cast<ssize_t>(sizeof order)) {
    ::alarm(internal::testing::child_seconds());
    take_over_environment(order.environment);
    try {
      order.task(order.rank, order.world, order.store);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << order.rank << ": " << error.what();
    }
    ::alarm(0);
    if (::testing::Test::HasFailure()) ::_exit(1);
    const char done = 0;
    static_cast<void>(::send(orders, &done, sizeof done, MSG_NOSIGNAL));
  }
  ::_exit(0);
}

class Crew {
 public:
  ~Crew() { dissolve(); }

  void run(int processes, CrewTask task, int world, const std::string& store) {
    while (members_.size() < static_cast<std::size_t>(processes)) add();
    std::vector<pollfd> awaited;
    for (int rank = 0; rank < processes; ++rank) {
      const Member& member = members_[static_cast<std::size_t>(rank)];
      const Order order = order_of(task, rank, world, store);
      static_cast<void>(::send(member.orders, &order, sizeof order, MSG_NOSIGNAL));
      awaited.push_back({member.orders, POLLIN, 0});
    }
    if (!all_do_it(awaited)) dissolve();
  }

 private:
  struct Member {
    pid_t process;
    int orders;
  };

  void add() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0) throw std::runtime_error("no socket pair");
    const pid_t process = ::fork();
    if (process == 0) {
      ::close(ends[0]);
      for (const Member& other : members_) ::close(other.orders);
      obey(ends[1]);
    }
    ::close(ends[1]);
    members_.push_back({process, ends[0]});
  }

  /// Who has answered well has a negative descriptor afterwards.
  static bool all_do_it(std::vector<pollfd>& awaited) {
    auto until = Clock::now() + internal::testing::hang_after();
    std::size_t left = awaited.size();
    std::vector<bool> failed(awaited.size());
    while (left > 0) {
      const auto rest = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
      if (::poll(awaited.data(), awaited.size(), static_cast<int>(std::max<long>(rest.count(), 0))) == 0)
        break;
      for (std::size_t rank = 0; rank < awaited.size(); ++rank) {
        if (awaited[rank].fd < 0 || awaited[rank].revents == 0) continue;
        char done = 0;
        failed[rank] = ::recv(awaited[rank].fd, &done, sizeof done, 0) != sizeof done;
        if (failed[rank]) until = std::min(until, Clock::now() + internal::testing::kAfterFailure);
        awaited[rank].fd = -1;
        --left;
      }
    }
    for (std::size_t rank = 0; rank < awaited.size(); ++rank) {
      EXPECT_FALSE(failed[rank]) << "rank " << rank;
      EXPECT_LT(awaited[rank].fd, 0) << "rank " << rank << " does not end";
    }
    return left == 0 && std::find(failed.begin(), failed.end(), true) == failed.end();
  }

  /// Those that hang say where.
  void dissolve() {
    std::vector<pid_t> processes;
    for (const Member& member : members_) {
      ::close(member.orders);
      processes.push_back(member.process);
    }
    const auto patience = internal::testing::kAfterFailure;
    for (const pid_t process : internal::testing::await_ends(processes, patience, patience)) {
      internal::testing::print_stacks(process);
      ::kill(process, SIGKILL);
    }
    for (const pid_t process : processes) internal::testing::wait_for(process);
    members_.clear();
  }

  std::vector<Member> members_;
};

}  // namespace

bool crew_is_wanted() {
  const char* const wanted = std::getenv("TEST_CREW");
  return wanted != nullptr && *wanted == '1';
}

void run_on_crew(int processes, CrewTask task, int world, const std::string& store) {
  static Crew crew;
  crew.run(processes, task, world, store);
}

}  // namespace lockstep::testing
