#include "tests/bootstrap/child_process.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <utility>

namespace lockstep::internal {
namespace {

constexpr int kPatienceMs = 60'000;

struct Pipe {
  Fd read, write;
};

Pipe make_pipe() {
  std::array<int, 2> ends{-1, -1};
  EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

/// Appends what can be read; false at the end of the stream.
bool read_more(const Fd& stream, std::string& text) {
  pollfd entry{stream.get(), POLLIN, 0};
  if (poll(&entry, 1, kPatienceMs) != 1) {
    ADD_FAILURE() << "a child process says nothing; so far: " << text;
    return false;
  }
  std::array<char, 4096> part;
  const ssize_t count = read(stream.get(), part.data(), part.size());
  if (count > 0) text.append(part.data(), static_cast<std::size_t>(count));
  return count > 0;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

}  // namespace

ChildProcess::ChildProcess(std::vector<std::string> arguments, const Environment& environment) {
  Pipe in = make_pipe(), out = make_pipe(), err = make_pipe();
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read.get(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out.write.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err.write.get(), STDERR_FILENO);
  EXPECT_EQ(posix_spawn(&pid_, arguments.front().c_str(), &actions, nullptr, pointers(arguments).data(),
                        pointers(variables).data()),
            0);
  posix_spawn_file_actions_destroy(&actions);
  input_ = std::move(in.write);
  output_ = std::move(out.read);
  error_ = std::move(err.read);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      input_(std::move(other.input_)),
      output_(std::move(other.output_)),
      error_(std::move(other.error_)),
      pending_(std::move(other.pending_)) {}

ChildProcess::~ChildProcess() {
  if (pid_ <= 0) return;
  kill(SIGKILL);
  wait();
}

void ChildProcess::kill(int signal) const { ::kill(pid_, signal); }

void ChildProcess::write_line(const std::string& line) {
  const std::string text = line + "\n";
  EXPECT_EQ(write(input_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

std::string ChildProcess::read_line() {
  std::size_t end;
  while ((end = pending_.find('\n')) == std::string::npos) {
    if (!read_more(output_, pending_)) return std::exchange(pending_, "");
  }
  const std::string line = pending_.substr(0, end);
  pending_.erase(0, end + 1);
  return line;
}

std::string ChildProcess::read_output() {
  while (read_more(output_, pending_)) {
  }
  return std::exchange(pending_, "");
}

std::string ChildProcess::read_error() {
  std::string text;
  while (read_more(error_, text)) {
  }
  return text;
}

int ChildProcess::wait() {
  int status = 0;
  EXPECT_EQ(waitpid(pid_, &status, 0), pid_);
  pid_ = -1;
  return status;
}

std::string rank_text(int rank, const ChildProcess& process) {
  std::array<char, HOST_NAME_MAX + 1> host{};
  EXPECT_EQ(gethostname(host.data(), host.size() - 1), 0);
  return "rank " + std::to_string(rank) + " (" + host.data() + ", pid " + std::to_string(process.pid()) + ")";
}

int exit_code(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

}  // namespace lockstep::internal
