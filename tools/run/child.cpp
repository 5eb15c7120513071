#include "tools/run/child.hpp"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "tools/run/own_process.hpp"

namespace lockstep::run {
namespace {

using internal::Fd;
using internal::Result;
using internal::Status;
using internal::system_error;

/// A channel to a child. The writing end is no Fd: the child of the fork must keep it.
class Channel {
 public:
  Channel() = default;
  ~Channel() { close_writing(); }
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  Status open_pipe() {
    std::array<int, 2> ends{-1, -1};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) return system_error("pipe", errno);
    reading = Fd(ends[0]);
    writing = ends[1];
    return Status();
  }
  Status open_terminal(int like) {
    reading = Fd(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    std::array<char, 64> name{};
    if (!reading || grantpt(reading.get()) != 0 || unlockpt(reading.get()) != 0 ||
        ptsname_r(reading.get(), name.data(), name.size()) != 0) {
      return system_error("cannot make a pseudo terminal", errno);
    }
    writing = open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (writing < 0) return system_error("cannot open a pseudo terminal", errno);
    termios modes{};
    if (tcgetattr(writing, &modes) == 0) {
      cfmakeraw(&modes);  // Else every \n comes out as \r\n.
      tcsetattr(writing, TCSANOW, &modes);
    }
    winsize size{};
    if (ioctl(like, TIOCGWINSZ, &size) == 0) ioctl(writing, TIOCSWINSZ, &size);
    return Status();
  }
  void close_writing() {
    if (writing >= 0) close(std::exchange(writing, -1));
  }

  Fd reading;
  int writing = -1;
};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

/// All that the child needs between fork and exec, where nothing may be allocated.
struct Image {
  explicit Image(const ChildOptions& options)
      : arguments(options.command), path(options.command.front()), descriptors(options.descriptors) {
    for (const auto& [name, value] : options.environment) variables.push_back(name + "=" + value);
    argv = pointers(arguments);
    envp = pointers(variables);
    shell_argv = argv;
    shell_argv.insert(shell_argv.begin(), shell.data());
  }
  std::vector<std::string> arguments, variables;
  std::string path, shell = "/bin/sh";
  rlimit descriptors;
  std::vector<char*> argv, envp;
  std::vector<char*> shell_argv;  ///< For a script that does not name its interpreter.
};

/// Runs in the child. Returns only by exec; errno goes into `failure` when that fails.
[[noreturn]] void become(const Image& image, pid_t parent, int input, int output, int error, int failure) {
  setrlimit(RLIMIT_NOFILE, &image.descriptors);
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // The parent died before the line above.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  if (input >= 0) dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(error, STDERR_FILENO);
  execve(image.path.c_str(), image.argv.data(), image.envp.data());
  if (errno == ENOEXEC) execve(image.shell.c_str(), image.shell_argv.data(), image.envp.data());
  const int why = errno;
  (void)!write(failure, &why, sizeof why);
  _exit(127);
}

/// Where there are no pseudo terminals (a root without /dev/pts, or none left), ranks do without.
Status make_stream(Channel& channel, bool terminal, int like) {
  if (!terminal || !channel.open_terminal(like).ok()) LOCKSTEP_RETURN_IF_ERROR(channel.open_pipe());
  if (fcntl(channel.reading.get(), F_SETFL, O_NONBLOCK) != 0) return system_error("fcntl", errno);
  return Status();
}

/// Waits for exec; ok when it succeeded.
Status await_exec(Channel& failure, const std::string& path, pid_t pid) {
  failure.close_writing();
  int why = 0;
  ssize_t count = 0;
  while ((count = read(failure.reading.get(), &why, sizeof why)) < 0 && errno == EINTR) {
  }
  if (count == 0) return Status();
  waitpid(pid, nullptr, 0);
  return system_error("cannot run " + path, why);
}

/// 0, or the errno of what would keep `path` from being run.
int why_not_run(const std::string& path) {
  if (access(path.c_str(), X_OK) != 0) return errno;
  std::error_code error;
  return std::filesystem::is_directory(path, error) ? EISDIR : 0;
}

}  // namespace

Result<Child> start_child(const ChildOptions& options) {
  Channel output, error, failure;
  LOCKSTEP_RETURN_IF_ERROR(make_stream(output, options.output_is_terminal, STDOUT_FILENO));
  LOCKSTEP_RETURN_IF_ERROR(make_stream(error, options.error_is_terminal, STDERR_FILENO));
  LOCKSTEP_RETURN_IF_ERROR(failure.open_pipe());
  const int null = options.has_input ? -1 : open("/dev/null", O_RDONLY | O_CLOEXEC);
  const Image image(options);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) become(image, parent, null, output.writing, error.writing, failure.writing);
  const int fork_error = errno;
  if (null >= 0) close(null);
  if (pid < 0) return no_process(fork_error);
  setpgid(pid, pid);  // Here too: whoever comes first. After exec it fails, and is not needed.
  LOCKSTEP_RETURN_IF_ERROR(await_exec(failure, image.path, pid));
  Child child;
  child.pid = pid;
  child.pidfd = Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!child.pidfd) {
    const int why = errno;
    kill(-pid, SIGKILL);  // With what it may have started: nobody else knows of this group yet.
    waitpid(pid, nullptr, 0);
    return system_error("pidfd_open", why);
  }
  child.output = std::move(output.reading);
  child.error = std::move(error.reading);
  return child;
}

Result<std::string> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    const int why = why_not_run(name);
    if (why == 0) return name;
    return system_error("cannot run " + name, why);
  }
  const char* variable = getenv("PATH");
  std::string_view path = variable != nullptr ? variable : "/usr/local/bin:/usr/bin:/bin";
  for (bool last = false; !last;) {
    const std::size_t end = path.find(':');
    const std::string_view directory = path.substr(0, end);  // An empty one is this one, as everywhere.
    const std::string candidate = std::string(directory.empty() ? "." : directory) + "/" + name;
    if (why_not_run(candidate) == 0) return candidate;
    last = end == std::string_view::npos;
    if (!last) path.remove_prefix(end + 1);
  }
  const bool here = why_not_run("./" + name) == 0;
  return Status(ErrorCode::configuration, "cannot find the program \"" + name + "\" in PATH" +
                                              (here ? "; did you mean ./" + name + "?" : ""));
}

}  // namespace lockstep::run
