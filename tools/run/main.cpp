// lockstep-run: starts the ranks of a job on this machine, serves their store, and answers for their end.
#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <string>

#include "lib/base/config.hpp"
#include "lib/base/random_text.hpp"
#include "lib/net/descriptor_limit.hpp"
#include "tools/run/guardian.hpp"
#include "tools/run/job.hpp"
#include "tools/run/job_environment.hpp"
#include "tools/run/options.hpp"
#include "tools/run/own_process.hpp"

namespace lockstep::run {
namespace {

using internal::Status;

constexpr int kCannotRun = 127;  // As shells say it of a command that cannot be started.
constexpr std::size_t kSecretBytes = 32, kJobIdBytes = 8;
// A rank's death closes its connection a moment before its exit status can be read. On a busy machine that
// may be long, and nobody waits for more than the status.
constexpr std::chrono::milliseconds kEvidenceGrace{2'000};

int complain(const char* why) {
  std::fprintf(stderr, "lockstep-run: %s\n", why);
  return kCannotRun;
}
int complain(const Status& status) { return complain(status.message().c_str()); }

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

/// Who starts lockstep-run on each of several hosts, and says where all shall meet, would get a job a host.
void warn_of_a_place_in_vain() {
  const std::string place = internal::config_text("LOCKSTEP_RENDEZVOUS");
  const bool is_of_another_run = internal::config_text("LOCKSTEP_STORE") == "launcher";
  if (place.empty() || is_of_another_run || internal::config_text("LOCKSTEP_LOG") == "off") return;
  std::fprintf(
      stderr,
      "lockstep-run: its ranks do not meet at LOCKSTEP_RENDEZVOUS=%s but by themselves, on this host: unset "
      "it, or start ranks of several hosts otherwise\n",
      place.c_str());
}

int run_job(const RunOptions& options, const rlimit& usual, Guardian& guardian) {
  auto signals = take_signals();
  if (!signals.ok()) return complain(signals.status());
  const std::string secret = internal::random_text(kSecretBytes);
  const std::string job_id = "run-" + internal::random_text(kJobIdBytes);
  internal::StoreServerOptions store_options;
  store_options.at.host = internal::loopback_address();
  store_options.key = internal::make_handshake_key(job_id, secret);
  store_options.evidence_grace = kEvidenceGrace;
  auto store = internal::StoreServer::start(std::move(store_options));
  if (!store.ok()) return complain(store.status());
  const JobFacts facts = new_job(options.ranks, store.value()->address(), secret, job_id);
  if (options.dry_run) return print_environments(facts);
  warn_of_a_place_in_vain();
  Job job(options, guardian, **store, *signals);
  if (const Status status = job.start(facts, usual); !status.ok()) return complain(status);
  return job.run();
}

/// `usual`: how many descriptors this process could have open before the limit was raised.
int run(int argc, char** argv, const rlimit& usual) {
  RunOptions options;
  if (const auto code = parse_options(argc, argv, options)) return *code;
  if (options.variables) return std::fputs(internal::variables_markdown().c_str(), stdout) < 0 ? 1 : 0;
  if (const Status status = internal::check_environment(); !status.ok()) return complain(status);
  if (!options.dry_run) {
    if (const Status status = check_descriptors(options, usual.rlim_max); !status.ok())
      return complain(status);
  }
  if (!options.output_directory.empty() && !options.dry_run &&
      mkdir(options.output_directory.c_str(), 0755) != 0 && errno != EEXIST) {
    return complain(internal::system_error("cannot create " + options.output_directory, errno));
  }
  auto guardian = Guardian::start();
  if (!guardian.ok()) return complain(guardian.status());
  return run_job(options, usual, *guardian);
}

}  // namespace
}  // namespace lockstep::run

int main(int argc, char** argv) {
  // Where a parent ignored it, the kernel reaps ranks, and nobody hears how they ended.
  signal(SIGCHLD, SIG_DFL);
  const rlimit usual = lockstep::internal::raise_descriptor_limit();
  lockstep::run::open_standard_streams();
  try {
    return lockstep::run::run(argc, argv, usual);
  } catch (const std::exception& error) {  // Threads and memory that cannot be had, at the start.
    return lockstep::run::complain(error.what());
  }
}
