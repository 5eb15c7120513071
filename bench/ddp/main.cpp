// lockstep-ddp-bench: what gradient synchronisation adds to a training step. See --help.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "bench/ddp/measure.hpp"
#include "bench/ddp/overlap.hpp"
#include "bench/ddp/report.hpp"
#include "bench/ddp/two_hosts.hpp"
#include "bench/json_file.hpp"
#include "bench/launch.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::bench;

constexpr const char* kPort = "29577";  // Of a command's rendezvous. With one host it must be free.

int ranks_per_host(const DdpOptions& options) { return options.ranks / options.hosts; }

/// The command in the place of this process, which is one rank's. Gives the exit status when it cannot start.
int run_command(const DdpOptions& options, int rank, bool two_hosts) {
  const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
  set("RANK", std::to_string(rank));
  set("WORLD_SIZE", std::to_string(options.ranks));
  set("LOCAL_RANK", std::to_string(rank % ranks_per_host(options)));
  set("MASTER_ADDR", two_hosts ? TwoHosts::address(0) : "127.0.0.1");
  set("MASTER_PORT", kPort);
  set("GLOO_SOCKET_IFNAME", two_hosts ? TwoHosts::interface(rank / ranks_per_host(options)) : "lo");
  std::vector<char*> arguments;
  for (const std::string& argument : options.command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execvp(arguments[0], arguments.data());
  std::cerr << "lockstep-ddp-bench: cannot run " << options.command[0] << ": " << std::strerror(errno)
            << "\n";
  return 127;
}

int run(const DdpOptions& options) {
  check_json(options.json);
  std::optional<TwoHosts> hosts;
  if (options.hosts > 1) hosts.emplace(options.link);
  const auto enter = [&](int rank) {
    if (hosts) hosts->enter(rank / ranks_per_host(options));
  };
  if (!options.command.empty()) {
    const auto body = [&](int rank) {
      enter(rank);
      return run_command(options, rank, hosts.has_value());
    };
    return run_in_processes(options.ranks, body, [] {});
  }
  std::optional<double> link_gbits;
  if (hosts) link_gbits = hosts->measure_link();
  // The two hosts are this process's own, so their secret guards nothing; but hosts without one are refused.
  const ProcessGroup group{options.ranks, options.transport, hosts ? "two hosts in one process" : "", enter};
  return launch_processes(group, [&](Communicator& communicator, Board& board) {
    if (options.zero >= 0) {
      const ZeroResult result = measure_zero(communicator, board, options);
      if (communicator.rank() == 0) report_zero(options, result);
      return 0;
    }
    if (options.overlap_forward) {
      const OverlapResult result = measure_overlap(communicator, board, options);
      if (communicator.rank() == 0) report_overlap(options, result, link_gbits);
      return 0;
    }
    const DdpResult result = measure_ddp(communicator, board, options);
    if (communicator.rank() == 0) report_ddp(options, result, link_gbits);
    return 0;
  });
}

}  // namespace

int main(int argc, char** argv) {
  DdpOptions options;
  if (const auto status = parse_ddp_options(argc, argv, options)) return *status;
  try {
    return run(options);
  } catch (const std::exception& error) {
    std::cerr << "lockstep-ddp-bench: " << error.what() << "\n";
    return 1;
  }
}
