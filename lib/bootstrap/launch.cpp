#include "lib/bootstrap/launch.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <optional>

#include "lib/base/hash.hpp"
#include "lib/base/parse.hpp"
#include "lib/bootstrap/launch_source.hpp"
#include "lib/bootstrap/limits.hpp"
#include "lib/net/tcp_socket.hpp"

namespace lockstep::internal {
namespace {

// Under Slurm and torchrun without a rendezvous, all nodes draw one port from the job's name: above the
// well-known ones, below those that users give torchrun (29400, 29500 and on) and the kernel's ephemeral
// ones. A port beside torchrun's own may be the next job's.
constexpr std::uint64_t kFirstDrawnPort = 20'000;
constexpr std::uint64_t kDrawnPorts = 9'000;
constexpr std::size_t kReadableName = 48;  // Of a job's name in a file name; its hash follows.

Status configuration_error(std::string message) {
  return Status(ErrorCode::configuration, std::move(message));
}

std::string text_of(const Environment& environment, std::string_view name) {
  return std::string(value_of(environment, name));
}

// ---- rank and size ---------------------------------------------------------------------------------------

Status incomplete(const LaunchClaim& claim) {
  const bool no_size = !claim.size;
  const auto& wanted = no_size ? claim.source->size : claim.source->rank;
  const std::string there = no_size ? claim.rank_variable : claim.size_variable;
  const std::string sign(there.empty() ? claim.source->sign : std::string_view(there));
  return configuration_error(
      sign + " is set but " + std::string(wanted.front()) + " is not, so the " +
      (no_size ? "size of the group" : "rank of this process") +
      " is not known; set LOCKSTEP_RANK and LOCKSTEP_WORLD_SIZE, to 0 and 1 for a group of one");
}

Status check_range(int rank, int size, const std::string& where) {
  if (size < 1 || size > kMaxWorld) {
    return configuration_error("world size " + std::to_string(size) + " (from " + where +
                               ") is out of range; it counts the ranks, from 1 to " +
                               std::to_string(kMaxWorld));
  }
  if (rank >= 0 && rank < size) return Status();
  return configuration_error("rank " + std::to_string(rank) + " (from " + where +
                             ") is out of range for world size " + std::to_string(size) +
                             "; ranks count from 0 to " + std::to_string(size - 1));
}

std::string where_from(const InitOptions& options, const std::optional<LaunchClaim>& claim) {
  if (!claim) return "explicit arguments";
  const bool mixed = options.rank || options.world_size;
  return claim->rank_variable + " and " + claim->size_variable + (mixed ? ", with explicit arguments" : "");
}

// ---- names -----------------------------------------------------------------------------------------------

/// Agents of several hosts count restarts each for itself: one whose ranks were well counts none when it
/// starts them again for another's. There every attempt has a port of its own, where the agents draw one.
std::string torchrun_job(const LaunchClaim& claim, const Environment& environment) {
  const std::string job =
      text_of(environment, "TORCHELASTIC_RUN_ID") + "." + text_of(environment, "MASTER_PORT");
  return claim.on_one_host() ? job + "." + text_of(environment, "TORCHELASTIC_RESTART_COUNT") : job;
}

std::string default_job_id(const LaunchClaim& claim, const Environment& environment) {
  const std::string_view id = claim.source->id;
  if (id == "torchrun") return torchrun_job(claim, environment);
  if (id == "openmpi") return text_of(environment, "PMIX_NAMESPACE");
  if (id == "slurm")
    return text_of(environment, "SLURM_JOB_ID") + "." + text_of(environment, "SLURM_STEP_ID");
  return "";
}

/// A file name that keeps `parts`, and containers, apart: readable at first, exact in the hash.
std::string local_name(const std::string& source, const std::string& parts,
                       const std::string& container = "") {
  std::string readable = parts.substr(0, kReadableName);
  for (char& c : readable) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
    if (!plain) c = '_';
  }
  std::array<char, 17> hash{};
  const auto end = std::to_chars(hash.data(), hash.data() + hash.size(), fnv1a(parts + container), 16).ptr;
  return source + "-" + readable + "-" + std::string(hash.data(), end);
}

// ---- rendezvous ------------------------------------------------------------------------------------------

/// The first host of "rack[0-1]-node[07-09,12]-ib,other": "rack0-node07-ib".
std::string first_host(std::string_view list) {
  std::string host;
  while (!list.empty() && list.front() != ',') {
    const std::size_t plain = std::min(list.find_first_of(",["), list.size());
    host += list.substr(0, plain);
    list.remove_prefix(plain);
    if (list.empty() || list.front() == ',') break;
    list.remove_prefix(1);
    host += list.substr(0, list.find_first_of("-,]"));
    list.remove_prefix(std::min(list.find(']'), list.size() - 1) + 1);
  }
  return host;
}

/// An address of IPv6 may be written with brackets, as in an URL.
std::string without_brackets(std::string host) {
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') return host.substr(1, host.size() - 2);
  return host;
}

std::uint16_t drawn_port(const std::string& job) {
  return static_cast<std::uint16_t>(kFirstDrawnPort + fnv1a(job) % kDrawnPorts);
}

Result<HostPort> master_of(const Environment& environment) {
  const std::string_view text = value_of(environment, "MASTER_PORT");
  const std::optional<std::int64_t> port = parse_integer(text);
  constexpr std::int64_t kLastPort = 65'535;
  if (!port || *port < 1 || *port > kLastPort) {
    return configuration_error("MASTER_PORT=" + std::string(text) + " is not a port that can be used");
  }
  return HostPort{without_brackets(text_of(environment, "MASTER_ADDR")), static_cast<std::uint16_t>(*port)};
}

Result<std::string> master_rendezvous(const Environment& environment) {
  const auto at = master_of(environment);
  if (!at.ok()) return at.status();
  return "tcp://" + at.value().text();
}

/// Of the two variables that say it together, the one that was forgotten.
std::string half_of_master(const Environment& environment) {
  const bool has_address = !value_of(environment, "MASTER_ADDR").empty();
  if (has_address == !value_of(environment, "MASTER_PORT").empty()) return "";
  return has_address ? ": MASTER_ADDR is set, but MASTER_PORT is not"
                     : ": MASTER_PORT is set, but MASTER_ADDR is not";
}

Result<std::string> torchrun_rendezvous(const LaunchClaim& claim, const Environment& environment,
                                        const ProcessIds& process) {
  const std::string job = torchrun_job(claim, environment);
  if (claim.on_one_host()) return "local://" + local_name("torchrun", job, process.container);
  auto at = master_of(environment);
  if (!at.ok()) return at.status();
  const std::uint16_t drawn = drawn_port(job);
  at->port = drawn == at->port ? drawn + 1 : drawn;
  return "tcp://" + at->text();
}

std::string slurm_rendezvous(const Environment& environment) {
  const std::string job = text_of(environment, "SLURM_JOB_ID") + "." + text_of(environment, "SLURM_STEP_ID");
  const HostPort at{first_host(value_of(environment, "SLURM_STEP_NODELIST")), drawn_port(job)};
  return "tcp://" + at.text();
}

/// Open MPI names a job after its host and the number of mpirun's process, which may be the same in two
/// containers; the place where mpirun listens is not. Of a job that the user named: nothing.
std::string pmix_server(const std::string& job, const Environment& environment) {
  static constexpr std::string_view kAnyVersion = "PMIX_SERVER_URI";
  const auto found = environment.lower_bound(kAnyVersion);
  const bool is_known = found != environment.end() && found->first.starts_with(kAnyVersion);
  return is_known && job == value_of(environment, "PMIX_NAMESPACE") ? found->second : "";
}

/// Ranks of one host whose job has no name: those that one process started.
std::string parent_rendezvous(const LaunchClaim& claim, const ProcessIds& process) {
  return "local://" + local_name(std::string(claim.source->id), "parent" + std::to_string(process.parent),
                                 process.container);
}

Result<std::string> find_rendezvous(const InitOptions& options, const std::optional<LaunchClaim>& claim,
                                    const Environment& environment, const std::string& job,
                                    const ProcessIds& process) {
  if (!options.rendezvous.empty()) return options.rendezvous;
  if (auto text = text_of(environment, "LOCKSTEP_RENDEZVOUS"); !text.empty()) return text;
  if (claim && claim->source->id == "torchrun") return torchrun_rendezvous(*claim, environment, process);
  if (!value_of(environment, "MASTER_ADDR").empty() && !value_of(environment, "MASTER_PORT").empty()) {
    return master_rendezvous(environment);
  }
  if (claim && claim->on_one_host() && job.empty()) return parent_rendezvous(*claim, process);
  if (claim && claim->on_one_host())
    return "local://" + local_name(std::string(claim->source->id), job, pmix_server(job, environment));
  if (claim && claim->is_slurm_step && !value_of(environment, "SLURM_STEP_NODELIST").empty())
    return slurm_rendezvous(environment);
  return configuration_error("the group has several ranks but no place to meet" +
                             half_of_master(environment) +
                             "; set LOCKSTEP_RENDEZVOUS=tcp://HOST:PORT on all ranks, with the host of rank "
                             "0 and a free port there, "
                             "or LOCKSTEP_RENDEZVOUS=local://NAME where all are on one host");
}

}  // namespace

Environment current_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals != std::string_view::npos)
      environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

Result<Launch> resolve_launch(const InitOptions& options, const Environment& environment,
                              const ProcessIds& process) {
  std::optional<LaunchClaim> claim;
  if (!options.rank || !options.world_size) {
    auto chosen = choose_claim(environment, process);
    if (!chosen.ok()) return chosen.status();
    claim = std::move(*chosen);
  }
  Launch launch;
  launch.job_id = !options.job_id.empty() ? options.job_id : text_of(environment, "LOCKSTEP_JOB_ID");
  if (claim && launch.job_id.empty()) launch.job_id = default_job_id(*claim, environment);
  if (!claim && !options.rank && !options.world_size) {
    launch.source = "single process";
    return launch;
  }
  const std::optional<int> rank = options.rank ? options.rank : claim ? claim->rank : std::nullopt;
  const std::optional<int> size = options.world_size ? options.world_size
                                  : claim            ? claim->size
                                                     : std::nullopt;
  if (!rank || !size) {
    if (claim) return incomplete(*claim);
    return configuration_error(std::string("InitOptions gives a ") +
                               (rank ? "rank but no world size" : "world size but no rank") +
                               ", and the environment gives neither; set both");
  }
  LOCKSTEP_RETURN_IF_ERROR(check_range(*rank, *size, where_from(options, claim)));
  launch.rank = *rank;
  launch.world_size = *size;
  launch.source = claim ? std::string(claim->source->name) : "explicit arguments";
  if (value_of(environment, "LOCKSTEP_STORE") == "launcher" && options.rendezvous.empty())
    launch.served_by = "the launcher";
  launch.own_numbers = options.rank && (text_of(environment, "LOCKSTEP_RANK") != std::to_string(*rank) ||
                                        text_of(environment, "LOCKSTEP_WORLD_SIZE") != std::to_string(*size));
  if (launch.world_size == 1) return launch;
  auto rendezvous = find_rendezvous(options, claim, environment, launch.job_id, process);
  if (!rendezvous.ok()) return rendezvous.status();
  launch.rendezvous = launch.given = std::move(*rendezvous);
  launch.named_by_parent =
      claim && launch.job_id.empty() && launch.rendezvous == parent_rendezvous(*claim, process);
  if (launch.rendezvous.starts_with(kServedScheme)) {
    launch.rendezvous.replace(0, kServedScheme.size(), "tcp://");
    launch.served_by = "the job's Rendezvous";
  }
  return launch;
}

Result<std::string> load_secret(const InitOptions& options, const Environment& environment) {
  if (!options.secret.empty()) return options.secret;
  if (auto secret = text_of(environment, "LOCKSTEP_SECRET"); !secret.empty()) return secret;
  const std::string path = text_of(environment, "LOCKSTEP_SECRET_FILE");
  if (path.empty()) return std::string();
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // A pipe may have no writer.
  struct stat facts {};
  if (!file || fstat(file.get(), &facts) != 0)
    return system_error("cannot open LOCKSTEP_SECRET_FILE=" + path, errno);
  if (facts.st_uid != geteuid()) {
    return configuration_error("LOCKSTEP_SECRET_FILE=" + path + " belongs to user " +
                               std::to_string(facts.st_uid) + ", and this process runs as user " +
                               std::to_string(geteuid()) + "; give it a copy of its own, with mode 0600");
  }
  if ((facts.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return configuration_error("LOCKSTEP_SECRET_FILE=" + path +
                               " can be read by other users; make it yours alone: chmod 600 " + path);
  }
  if (!S_ISREG(facts.st_mode)) {
    return configuration_error("LOCKSTEP_SECRET_FILE=" + path +
                               " is no ordinary file; write the secret to one, with mode 0600");
  }
  std::string secret(kMaxSecretBytes + 1, '\0');
  const ssize_t count = read(file.get(), secret.data(), secret.size());
  if (count < 0) return system_error("cannot read LOCKSTEP_SECRET_FILE=" + path, errno);
  secret.resize(static_cast<std::size_t>(count));
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  if (!secret.empty() && secret.size() <= kMaxSecretBytes) return secret;
  return configuration_error("LOCKSTEP_SECRET_FILE=" + path + " must hold between 1 and " +
                             std::to_string(kMaxSecretBytes) + " bytes");
}

}  // namespace lockstep::internal
