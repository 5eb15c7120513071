// lockstep-run: starts the ranks of a job on this machine, serves their store, and answers for their end.
#include <fcntl.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string>

#include "lib/base/config.hpp"
#include "tools/run/guardian.hpp"
#include "tools/run/job.hpp"
#include "tools/run/job_environment.hpp"
#include "tools/run/options.hpp"

namespace lockstep::run {
namespace {

using internal::Fd;
using internal::Result;
using internal::Status;

constexpr int kCannotRun = 127;  // As shells say it of a command that cannot be started.
constexpr int kSecretBytes = 32;
constexpr int kJobIdBytes = 8;
// A rank's death closes its connection a moment before its exit status can be read. On a busy machine that
// may be long, and nobody waits for more than the status.
constexpr std::chrono::milliseconds kEvidenceGrace{2'000};

/// What is opened later would get the number of a closed standard stream, and be overwritten by what is put
/// there.
void open_standard_streams() {
  int fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = open("/dev/null", O_RDWR);
  if (fd >= 0) close(fd);
}

int complain(const Status& status) {
  std::fprintf(stderr, "lockstep-run: %s\n", status.message().c_str());
  return kCannotRun;
}

int print_environments(const JobFacts& facts) {
  const internal::Environment inherited = internal::current_environment();
  for (int rank = 0; rank < facts.ranks; ++rank) {
    const internal::Environment all = rank_environment(inherited, facts, rank);
    // What is set here, with the value that the rank gets.
    for (const auto& [name, value] : rank_environment({}, facts, rank))
      std::printf("[%d] %s=%s\n", rank, name.c_str(), all.at(name).c_str());
  }
  return 0;
}

/// Blocks the signals that are passed on and gives a descriptor to read them from. Before any thread starts,
/// so that all threads block them.
Result<Fd> take_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCONT, SIGTSTP})
    sigaddset(&set, signal);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  Fd fd(signalfd(-1, &set, SFD_CLOEXEC));
  if (!fd) return internal::system_error("signalfd", errno);
  return fd;
}

int run_job(const RunOptions& options, Guardian& guardian) {
  auto signals = take_signals();
  if (!signals.ok()) return complain(signals.status());
  const std::string secret = random_text(kSecretBytes), job_id = "run-" + random_text(kJobIdBytes);
  internal::StoreServerOptions store_options;
  store_options.key = internal::make_handshake_key(job_id, secret);
  store_options.evidence_grace = kEvidenceGrace;
  auto store = internal::StoreServer::start(std::move(store_options));
  if (!store.ok()) return complain(store.status());
  const JobFacts facts = new_job(options.ranks, "tcp://" + store.value()->address().text(), secret, job_id);
  if (options.dry_run) return print_environments(facts);
  Job job(options, guardian, **store, *signals);
  if (const Status status = job.start(facts); !status.ok()) return complain(status);
  return job.run();
}

int run(int argc, char** argv) {
  RunOptions options;
  if (const auto code = parse_options(argc, argv, options)) return *code;
  if (options.variables) return std::fputs(internal::variables_markdown().c_str(), stdout) < 0 ? 1 : 0;
  if (const Status status = internal::check_environment(); !status.ok()) return complain(status);
  if (!options.output_directory.empty() && mkdir(options.output_directory.c_str(), 0755) != 0 &&
      errno != EEXIST) {
    return complain(internal::system_error("cannot create " + options.output_directory, errno));
  }
  auto guardian = Guardian::start();
  if (!guardian.ok()) return complain(guardian.status());
  return run_job(options, *guardian);
}

}  // namespace
}  // namespace lockstep::run

int main(int argc, char** argv) {
  lockstep::run::open_standard_streams();
  return lockstep::run::run(argc, argv);
}
