#include "tools/run/job.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "tools/run/exit_text.hpp"

namespace lockstep::run {
namespace {

using internal::Deadline;
using internal::Environment;
using internal::Fd;
using internal::Result;
using internal::Status;

constexpr std::size_t kReadBytes = 16 << 10;
constexpr mode_t kFileMode = 0644;
// Of a stream whose rank has ended: more than it can have left in there. What follows is from a process that
// left the rank's group and lives on.
constexpr int kLastReads = 32;

constexpr std::array kStreams{Screen::Stream::output, Screen::Stream::error};
Fd& stream_of(Child& child, Screen::Stream stream) {
  return stream == Screen::Stream::output ? child.output : child.error;
}

Result<Fd> open_log(const std::string& directory, int rank) {
  if (directory.empty()) return Fd();
  const std::string path = directory + "/rank-" + std::to_string(rank) + ".log";
  Fd file(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kFileMode));
  if (!file) return internal::system_error("cannot write " + path, errno);
  return file;
}

// For the reader of what is left to say when the job ends: a busy one takes a moment.
constexpr std::chrono::milliseconds kLeastPatience{1'000};
constexpr int kEndsAtOnce = 64;
constexpr int kUnknownEnd = W_EXITCODE(127, 0);  // Somebody else reaped the rank. Shells answer so, too.
constexpr std::size_t kSignalsAtOnce = 8;
// A user who presses the key again after so many seconds has waited. GNU timeout, shells and schedulers send
// SIGTERM twice, or SIGHUP with it, within microseconds, and mean it once.
constexpr std::int64_t kAskedAgain = 1;

bool is_from_a_user(int signal) { return signal == SIGINT || signal == SIGQUIT; }
bool ends_the_job(int signal) { return is_from_a_user(signal) || signal == SIGTERM || signal == SIGHUP; }

}  // namespace

Job::~Job() {
  signal_all(SIGKILL);
  for (const Rank& rank : ranks_) {
    if (!rank.status) reap(rank.child.pid);
  }
}

Status Job::start(const JobFacts& facts, const rlimit& descriptors) {
  auto program = find_program(options_.command.front());
  if (!program.ok()) return program.status();
  ends_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  if (!ends_) return internal::system_error("epoll_create1", errno);
  ChildOptions options;
  options.descriptors = descriptors;
  options.command = options_.command;
  options.command.front() = *program;
  options.output_is_terminal = screen_.is_terminal(Screen::Stream::output);
  options.error_is_terminal = screen_.is_terminal(Screen::Stream::error);
  const Environment inherited = internal::current_environment();
  for (int rank = 0; rank < facts.ranks; ++rank) {
    options.environment = rank_environment(inherited, facts, rank);
    options.has_input = rank == 0 && isatty(STDIN_FILENO) == 0;
    LOCKSTEP_RETURN_IF_ERROR(start_rank(rank, options));
  }
  return Status();
}

Status Job::start_rank(int rank, const ChildOptions& options) {
  auto log = open_log(options_.output_directory, rank);
  if (!log.ok()) return log.status();
  auto child = start_child(options);
  if (!child.ok()) return child.status();
  guardian_.add(child->pid);
  const bool shown = !options_.quiet && (!options_.only_rank || *options_.only_rank == rank);
  ranks_.push_back(
      {std::move(*child), std::make_unique<RankOutput>(rank, screen_, std::move(*log), shown), {}});
  epoll_event wanted{EPOLLIN, {.fd = rank}};
  if (epoll_ctl(ends_.get(), EPOLL_CTL_ADD, ranks_.back().child.pidfd.get(), &wanted) == 0) return Status();
  return internal::system_error("epoll_ctl", errno);
}

int Job::run() {
  while (any_running()) take_turn();
  for (Rank& rank : ranks_) {
    // What left the rank's group may write for ever.
    for (const Screen::Stream stream : kStreams) stream_of(rank.child, stream).reset();
    rank.output->finish();
  }
  if (failure_) report();
  while (screen_.is_waiting()) take_turn();
  return failure_ ? exit_code(failure_->status) : 0;
}

void Job::take_turn() {
  wait_for_events();
  if (grace_ && grace_->passed() && !killed_) kill_all();
  screen_.flush();
}

bool Job::any_running() const {
  for (const Rank& rank : ranks_) {
    if (!rank.status) return true;
  }
  return false;
}

void Job::wait_for_events() {
  std::vector<pollfd> entries{{signals_.get(), POLLIN, 0}, {ends_.get(), POLLIN, 0}};
  screen_.add_entries(entries);
  const std::size_t first = entries.size();
  for (Rank& rank : ranks_) {
    for (const Screen::Stream stream : kStreams) {
      // poll leaves out -1, which a closed one is, too.
      const bool has_room = rank.output->has_room(stream);
      entries.push_back({has_room ? stream_of(rank.child, stream).get() : -1, POLLIN, 0});
    }
  }
  if (poll(entries.data(), entries.size(), poll_timeout()) <= 0) return;
  if (entries[0].revents != 0) handle_signals();
  const pollfd* entry = &entries[first];
  for (Rank& rank : ranks_) {
    for (const Screen::Stream stream : kStreams) {
      if ((entry++)->revents != 0 && rank.output->has_room(stream)) read_output(rank, stream);
    }
  }
  if (entries[1].revents != 0) collect_ended();
  if (getpid() == 1) reap_orphans();
}

int Job::poll_timeout() const {
  return sooner(grace_ && !killed_ ? grace_->poll_timeout() : kNoTimeout, screen_.poll_timeout());
}

void Job::read_output(Rank& rank, Screen::Stream stream) {
  Fd& from = stream_of(rank.child, stream);
  std::array<char, kReadBytes> bytes;
  const ssize_t count = read(from.get(), bytes.data(), bytes.size());
  if (count > 0) return rank.output->take(stream, {bytes.data(), static_cast<std::size_t>(count)});
  // The end; a pseudo terminal says EIO.
  if (count == 0 || (errno != EAGAIN && errno != EINTR)) from.reset();
}

/// In the order of their deaths, which an epoll keeps: the first that failed is the cause.
void Job::collect_ended() {
  std::array<epoll_event, kEndsAtOnce> events{};
  int count = 0;
  while ((count = epoll_wait(ends_.get(), events.data(), kEndsAtOnce, 0)) > 0) {
    for (int i = 0; i < count; ++i) collect(events[static_cast<std::size_t>(i)].data.fd);
  }
}

/// Waits for the leader of a group, and ends what it left behind. Its status.
int Job::reap(pid_t leader) {
  siginfo_t info{};
  const bool is_there = waitid(P_PID, static_cast<id_t>(leader), &info, WEXITED | WNOWAIT) == 0;
  // While the leader is not reaped its number, and so the group's, is nobody else's.
  if (is_there) kill(-leader, SIGKILL);
  guardian_.remove(leader);
  int status = kUnknownEnd;
  if (is_there) waitpid(leader, &status, 0);
  return status;
}

/// The first process of a container gets those of all others. A rank hides those that ended after it, till it
/// is collected.
void Job::reap_orphans() const {
  const auto is_rank = [this](pid_t pid) {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [pid](const Rank& rank) { return !rank.status && rank.child.pid == pid; });
  };
  for (;;) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0) return;
    if (info.si_pid == 0 || is_rank(info.si_pid)) return;
    waitpid(info.si_pid, nullptr, 0);
  }
}

/// A rank has ended: takes its last words.
void Job::collect(int number) {
  Rank& rank = ranks_[static_cast<std::size_t>(number)];
  epoll_ctl(ends_.get(), EPOLL_CTL_DEL, rank.child.pidfd.get(), nullptr);
  const int status = reap(rank.child.pid);
  rank.status = status;
  for (const Screen::Stream stream : kStreams) {
    const Fd& from = stream_of(rank.child, stream);
    pollfd entry{from.get(), POLLIN, 0};
    for (int i = 0; i < kLastReads && from && poll(&entry, 1, 0) == 1; ++i) read_output(rank, stream);
  }
  if (exit_code(status) != 0) return fail(number);
  store_.report_end({number, exit_text(status)});
}

void Job::fail(int number) {
  const Rank& rank = ranks_[static_cast<std::size_t>(number)];
  if (failure_) return;  // The first failure is the cause; what follows is our own doing, or its consequence.
  failure_ = {number, rank.child.pid, *rank.status};
  store_.report_loss({number, exit_text(*rank.status)});
  stop_others();
}

void Job::stop_others() {
  signal_all(SIGTERM);
  signal_all(SIGCONT);  // A stopped process sleeps through SIGTERM.
  begin_grace();
}

/// Nobody lengthens it by asking again.
void Job::begin_grace() {
  if (grace_) return;
  grace_.emplace(internal::real_env(), options_.grace);
  screen_.limit_patience(std::max(options_.grace, kLeastPatience));
}

void Job::kill_all() {
  signal_all(SIGKILL);
  killed_ = true;
}

void Job::handle_signals() {
  const bool later = grace_ && grace_->seconds_waited() >= kAskedAgain;
  std::array<signalfd_siginfo, kSignalsAtOnce> infos{};
  const ssize_t bytes = read(signals_.get(), infos.data(), sizeof infos);
  for (std::size_t i = 0; bytes > 0 && i < static_cast<std::size_t>(bytes) / sizeof infos[0]; ++i) {
    const int signal = static_cast<int>(infos[i].ssi_signo);
    if (signal == SIGCHLD) continue;
    if (later && is_from_a_user(signal)) {
      kill_all();
      screen_.limit_patience(std::chrono::milliseconds(0));
    }
    signal_all(signal);
    if (ends_the_job(signal)) begin_grace();
    if (signal == SIGTSTP) kill(getpid(), SIGSTOP);  // SIGCONT wakes this process, and is passed on.
  }
}

void Job::signal_all(int signal) const {
  for (const Rank& rank : ranks_) {
    if (!rank.status) kill(-rank.child.pid, signal);
  }
}

void Job::report() {
  const std::string who = "rank " + std::to_string(failure_->rank);
  const std::string others = ranks_.size() > 1 ? "; the other ranks were stopped" : "";
  const auto say = [this](const std::string& text) { screen_.line(Screen::Stream::error, text); };
  say("lockstep-run: " + who + " (pid " + std::to_string(failure_->pid) + ") " + exit_text(failure_->status) +
      others);
  const auto& tail = ranks_[static_cast<std::size_t>(failure_->rank)].output->tail();
  if (tail.empty()) return;
  say("lockstep-run: the last lines of standard error of " + who + ":");
  for (const std::string& line : tail) say(line);
}

}  // namespace lockstep::run
