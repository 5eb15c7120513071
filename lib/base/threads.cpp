#include "lib/base/threads.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <exception>
#include <future>
#include <system_error>
#include <utility>
#include <vector>

#include "lib/base/status.hpp"

namespace lockstep::internal {
namespace {

/// A thread starts with the mask that its maker has at that moment.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

/// The kernel's sched_attr, first version; C libraries before glibc 2.41 do not declare it.
struct SchedulingAttributes {
  std::uint32_t size = sizeof(SchedulingAttributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime = 0, deadline = 0, period = 0;
};

struct Joined {
  std::vector<std::thread> threads;
  ~Joined() {
    for (std::thread& thread : threads) thread.join();
  }
};

}  // namespace

std::thread start_thread(std::function<void()> body) {
  const SignalsBlocked blocked;
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& refused) {
    // The same error comes where there is no address space for its stack.
    system_error(
        "no thread could be started; raise `ulimit -u` or `ulimit -v`, or the container's limit of processes",
        refused.code().value())
        .throw_if_error();
    throw;
  }
}

void ask_for_short_turns() {
  constexpr std::uint64_t kTurn = 100'000;  // ns; the default is 1.4 ms on 2 cores, more on more.
  SchedulingAttributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != SCHED_OTHER) return;
  attributes.size = sizeof attributes;
  attributes.runtime = kTurn;
  static_cast<void>(syscall(SYS_sched_setattr, 0, &attributes, 0));
}

void on_threads(std::size_t n, const std::function<void(std::size_t)>& body) {
  std::vector<std::exception_ptr> thrown(n);
  {
    Joined joined;  // After the promise below is kept or broken.
    joined.threads.reserve(n);
    std::promise<void> all_started;
    const std::shared_future<void> start = all_started.get_future().share();
    for (std::size_t i = 0; i < n; ++i) {
      joined.threads.push_back(start_thread([&body, &failure = thrown[i], start, i] {
        try {
          start.get();  // Throws where the promise was broken.
          body(i);
        } catch (...) {
          failure = std::current_exception();
        }
      }));
    }
    all_started.set_value();
  }
  for (const std::exception_ptr& failure : thrown) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace lockstep::internal
