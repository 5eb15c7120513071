#include "lib/net/reactor.hpp"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <future>
#include <list>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <thread>
#include <unordered_map>

#include "lib/base/config.hpp"
#include "lib/base/status.hpp"
#include "lib/base/threads.hpp"
#include "lib/net/file_identity.hpp"
#include "lib/net/progress_roster.hpp"

namespace lockstep::internal {
namespace {

// Rounds in which everything is stuck before the thread sleeps. Between them it yields, so that a peer on the
// same core can run; it never spins, because a process cannot know whether a core is spare.
constexpr int kYieldRounds = 8;
// While the thread does not sleep, descriptors, timers and tasks are looked at once in so many rounds (a look
// is a system call), whatever came of these rounds: peers that yield to each other may move in every other.
constexpr int kRoundsBetweenLooks = 16;
// Sleep when a stuck progressor has no descriptor to wait on.
constexpr Nanos kBlindSleep = 1'000'000;
// And when all have one: deadlines, and questions to peers that are late, come without an event. Nobody is
// armed in an idle process, which so sleeps on.
constexpr Nanos kArmedSleep = 100'000'000;
constexpr int kEventsPerLook = 32;
// Before what found no memory is tried again.
constexpr int kMemoryPauseMilliseconds = 1;
// Tries in vain, all in all, before that is said: shortages that pass come to fewer, and what never finds
// memory would hold everything up without a word.
constexpr int kSilentAttempts = 1000;
// Descriptors that only wake the thread carry this instead of a handle.
constexpr Reactor::Handle kNoHandle = 0;

/// The reactor whose thread this is.
thread_local const void* t_reactor = nullptr;

/// Where nothing wakes the thread any more: who waits for it would do so for ever.
[[noreturn]] void end_without_descriptors() noexcept {
  std::fputs(
      "lockstep: the program has closed the library's descriptors, and the library cannot go on: close only "
      "your own (no closefrom, no close_range) while it is in use\n",
      stderr);
  std::abort();
}

class ThreadReactor final : public Reactor {
 public:
  explicit ThreadReactor(const char* thread_name);

  Handle watch(int fd, std::uint32_t events, std::function<void(std::uint32_t)> ready) override;
  void modify(Handle handle, std::uint32_t events) override;
  Handle at(Nanos when, std::function<void()> fire) override;
  void remove(Handle handle) override;
  void post(std::function<void()> task) override;
  void run_there(const std::function<void()>& task) override;
  void add(Progressor* progressor) override;
  void remove(Progressor* progressor) override;
  void notify() override;

 private:
  // A watch (fd >= 0) or a timer.
  struct Entry {
    int fd = -1;
    Nanos when = 0;
    std::function<void(std::uint32_t)> call;
    bool running = false;
  };
  using Events = std::array<epoll_event, kEventsPerLook>;

  bool on_this_thread() const { return t_reactor == this; }
  [[noreturn]] void run();
  void sleep();
  void look();
  int wait_for_events(Events& events, Nanos timeout);
  void dispatch(const Events& events, int count);
  void fire_timers();
  void run_tasks();
  void call(Handle handle, std::uint32_t events);
  template <class Callback>
  bool attempt(Callback&& callback);
  bool tasks_waiting();
  Nanos until_next_timer();
  bool control(int operation, int fd, std::uint32_t events, Handle handle);
  void wake() noexcept;
  Handle insert(Entry entry);

  const bool warns_ = config_text("LOCKSTEP_LOG") != "off";  ///< Asked while there is memory.
  Fd epoll_;
  Fd bell_;
  std::optional<FileIdentity> bell_file_;
  std::atomic<bool> asleep_{false};
  ProgressRoster roster_;

  std::mutex mutex_;
  std::condition_variable finished_;
  std::unordered_map<Handle, std::shared_ptr<Entry>> entries_;
  std::set<std::pair<Nanos, Handle>> timers_;
  std::list<std::function<void()>> tasks_;
  Handle next_ = 1;
  int in_vain_ = 0;  ///< Of this thread.
};

ThreadReactor::ThreadReactor(const char* thread_name)
    : epoll_(epoll_create1(EPOLL_CLOEXEC)), bell_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  // Edge-triggered: every ring wakes once, and nobody has to read the counter back.
  if (!epoll_ || !bell_ || !control(EPOLL_CTL_ADD, bell_.get(), EPOLLIN | EPOLLET, kNoHandle))
    system_error("the progress thread needs two file descriptors", errno).throw_if_error();
  bell_file_ = identity_of(bell_);
  std::thread thread = start_thread([this] { run(); });
  pthread_setname_np(thread.native_handle(), thread_name);
  thread.detach();
}

Reactor::Handle ThreadReactor::insert(Entry entry) {
  std::lock_guard lock(mutex_);
  const Handle handle = next_++;
  decltype(timers_) timer;  // Made first: one without an entry would be due for ever.
  if (entry.fd < 0) timer.emplace(entry.when, handle);
  entries_.emplace(handle, std::make_shared<Entry>(std::move(entry)));
  timers_.merge(timer);
  return handle;
}

bool ThreadReactor::control(int operation, int fd, std::uint32_t events, Handle handle) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = handle;
  return epoll_ctl(epoll_.get(), operation, fd, &event) == 0;
}

Reactor::Handle ThreadReactor::watch(int fd, std::uint32_t events, std::function<void(std::uint32_t)> ready) {
  if (fd < 0 || in_forked_child()) return kNoHandle;
  Entry entry;
  entry.fd = fd;
  entry.call = std::move(ready);
  const Handle handle = insert(std::move(entry));
  if (control(EPOLL_CTL_ADD, fd, events, handle)) return handle;
  std::lock_guard lock(mutex_);
  entries_.erase(handle);
  return kNoHandle;
}

void ThreadReactor::modify(Handle handle, std::uint32_t events) {
  if (in_forked_child()) return;
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(handle);
  if (found != entries_.end()) control(EPOLL_CTL_MOD, found->second->fd, events, handle);
}

Reactor::Handle ThreadReactor::at(Nanos when, std::function<void()> fire) {
  if (in_forked_child()) return kNoHandle;
  Entry entry;
  entry.when = when;
  entry.call = [fire = std::move(fire)](std::uint32_t) { fire(); };
  const Handle handle = insert(std::move(entry));
  wake();
  return handle;
}

void ThreadReactor::remove(Handle handle) {
  if (in_forked_child()) return;
  std::shared_ptr<Entry>
      entry;  // Outlives the lock: what the callback holds may call back when it is destroyed.
  std::unique_lock lock(mutex_);
  const auto found = entries_.find(handle);
  if (found == entries_.end()) return;
  entry = found->second;
  entries_.erase(found);
  timers_.erase({entry->when, handle});
  if (entry->fd >= 0) control(EPOLL_CTL_DEL, entry->fd, 0, handle);
  if (!on_this_thread()) finished_.wait(lock, [&] { return !entry->running; });
}

void ThreadReactor::post(std::function<void()> task) {
  if (in_forked_child()) return;
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake();
}

void ThreadReactor::run_there(const std::function<void()>& task) {
  if (in_forked_child()) return;
  if (on_this_thread()) return task();
  std::promise<void> done;
  post([&]() noexcept {
    try {
      task();
      done.set_value();
    } catch (...) {  // Memory may run out there, and it is the caller who needs it.
      done.set_exception(std::current_exception());
    }
  });
  done.get_future().get();
}

void ThreadReactor::add(Progressor* progressor) {
  if (in_forked_child()) return;
  roster_.add(progressor);
  notify();
}

void ThreadReactor::remove(Progressor* progressor) {
  if (in_forked_child()) return;
  roster_.remove(
      progressor, on_this_thread() ? std::function<void()>() : [this] { wake(); });
}

void ThreadReactor::notify() {
  if (in_forked_child()) return;
  roster_.request();
  wake();
}

// Call after the change to be seen was published. Either this exchange sees the declaration of sleep(), or
// sleep()'s second look sees the change.
void ThreadReactor::wake() noexcept {
  if (!asleep_.exchange(false)) return;
  const std::uint64_t one = 1;
  // The program may have a file of its own under the number by now, which these bytes would go to. Fails for
  // a full counter, which wakes as well.
  if (identity_of(bell_) != bell_file_) end_without_descriptors();
  [[maybe_unused]] const ssize_t written = ::write(bell_.get(), &one, sizeof one);
}

void ThreadReactor::run() {
  t_reactor = this;
  ask_for_short_turns();
  int stuck_rounds = 0, rounds_since_look = 0;
  for (;;) {
    const auto outcome = roster_.step();
    stuck_rounds = outcome == Progressor::Outcome::stuck ? stuck_rounds + 1 : 0;
    if (outcome == Progressor::Outcome::idle || stuck_rounds > kYieldRounds) {
      sleep();
      stuck_rounds = rounds_since_look = 0;
      continue;
    }
    if (outcome == Progressor::Outcome::stuck) sched_yield();
    if (++rounds_since_look < kRoundsBetweenLooks) continue;
    look();
    rounds_since_look = 0;
  }
}

void ThreadReactor::sleep() {
  asleep_.store(true);
  const ProgressRoster::Armed& armed = roster_.arm();
  for (int fd : armed.descriptors) control(EPOLL_CTL_ADD, fd, EPOLLIN, kNoHandle);
  Nanos timeout = until_next_timer();
  if (!armed.descriptors.empty()) timeout = std::min(timeout, kArmedSleep);
  if (armed.blind) timeout = std::min(timeout, kBlindSleep);
  // The second look comes after both declarations: ours to posters, the progressors' to their peers. It sees
  // what came before them, so that a sleep which ends by its time loses nothing, though the progressors' own
  // watch for edges: what happens between two sleeps is seen by the rounds between them, or by this look.
  if (roster_.step_armed() || roster_.requested() || tasks_waiting()) timeout = 0;
  Events events;
  const int count = wait_for_events(events, timeout);
  asleep_.store(false);
  for (int fd : armed.descriptors) control(EPOLL_CTL_DEL, fd, 0, kNoHandle);
  roster_.disarm();  // Before any callback: one may wait for a thread that waits to remove a progressor.
  dispatch(events, count);
}

void ThreadReactor::look() {
  Events events;
  dispatch(events, wait_for_events(events, 0));
}

int ThreadReactor::wait_for_events(Events& events, Nanos timeout) {
  constexpr Nanos kMillisecond = 1'000'000;
  const Nanos milliseconds = timeout / kMillisecond + (timeout % kMillisecond != 0);
  return epoll_wait(epoll_.get(), events.data(), kEventsPerLook,
                    timeout == kForever ? -1 : static_cast<int>(std::min<Nanos>(milliseconds, INT_MAX)));
}

void ThreadReactor::dispatch(const Events& events, int count) {
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 != kNoHandle) call(event.data.u64, event.events);
  }
  fire_timers();
  run_tasks();
}

void ThreadReactor::call(Handle handle, std::uint32_t events) {
  std::shared_ptr<Entry> entry;
  decltype(timers_)::node_type timer;
  {
    std::lock_guard lock(mutex_);
    const auto found = entries_.find(handle);
    if (found == entries_.end()) return;  // Removed by an earlier callback of this look.
    entry = found->second;
    entry->running = true;
    if (entry->fd < 0) {
      // A timer fires once. It stays in entries_ while it runs, so that remove() can wait for it.
      timer = timers_.extract({entry->when, handle});
    }
  }
  const bool ran = attempt([&] { entry->call(events); });
  std::lock_guard lock(mutex_);
  entry->running = false;
  if (entry->fd < 0 && ran) entries_.erase(handle);
  if (!timer.empty() && !ran && entries_.contains(handle)) timers_.insert(std::move(timer));
  finished_.notify_all();
}

/// Whether there was memory for it. Otherwise it is to be tried again: the process may have more by then.
template <class Callback>
bool ThreadReactor::attempt(Callback&& callback) try {
  callback();
  return true;
} catch (const std::bad_alloc&) {
  if (++in_vain_ == kSilentAttempts && warns_)
    std::fputs("lockstep: the progress thread finds no memory for what it has to do, and goes on trying\n",
               stderr);
  ::poll(nullptr, 0, kMemoryPauseMilliseconds);
  return false;
}

void ThreadReactor::fire_timers() {
  const Nanos now = real_env().now();
  for (;;) {
    Handle due = kNoHandle;
    {
      std::lock_guard lock(mutex_);
      if (!timers_.empty() && timers_.begin()->first <= now) due = timers_.begin()->second;
    }
    if (due == kNoHandle) return;
    call(due, 0);
  }
}

void ThreadReactor::run_tasks() {
  std::list<std::function<void()>> tasks;
  {
    std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  while (!tasks.empty() && attempt(tasks.front())) tasks.pop_front();
  std::lock_guard lock(mutex_);
  tasks_.splice(tasks_.begin(), tasks);  // From one that is to be tried again on.
}

bool ThreadReactor::tasks_waiting() {
  std::lock_guard lock(mutex_);
  return !tasks_.empty();
}

Nanos ThreadReactor::until_next_timer() {
  std::lock_guard lock(mutex_);
  if (timers_.empty()) return kForever;
  return std::max<Nanos>(0, timers_.begin()->first - real_env().now());
}

}  // namespace

bool on_reactor_thread() noexcept { return t_reactor != nullptr; }

Reactor& Reactor::instance() {
  static ThreadReactor* reactor = new ThreadReactor("lockstep");  // May outlive main(): never destroyed.
  return *reactor;
}

Reactor& Reactor::serving() {
  static ThreadReactor* reactor = new ThreadReactor("lockstep-serve");
  return *reactor;
}

}  // namespace lockstep::internal
