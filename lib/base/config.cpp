#include "lib/base/config.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "lib/base/foreign_variables.hpp"
#include "lib/base/log.hpp"
#include "lib/base/nearest.hpp"
#include "lib/base/parse.hpp"

namespace lockstep::internal {
namespace {

using enum VariableKind;

// Sorted by name (checked below). After a change, write docs/variables.md anew: a test compares it.
constexpr auto kVariables = std::to_array<Variable>({
    {"LOCKSTEP_ALGORITHMS", text, "",
     "Forces algorithms by collective and message size, for example "
     "`all_reduce:0-16k=one_shot,16k-inf=ring;broadcast:*=binomial`; must be equal on all ranks."},
    {"LOCKSTEP_DEVICE_BACKEND", text, "cuda",
     "What executes operations on device memory: CUDA, or threads of this `host`, for tests and for programs "
     "developed on machines without a GPU.",
     "cuda|host"},
    {"LOCKSTEP_DEVICE_MODE", text, "auto",
     "How streams of different ranks wait for one another in collectives on devices (docs/gpu.md); equal on "
     "all ranks.",
     "auto|host_sync|stream_sync|device_sync"},
    {"LOCKSTEP_DEVICE_STAGING", bytes, "64M",
     "Device memory of each rank and communicator through which the data of unregistered buffers pass; the "
     "least of all ranks counts. Messages between ranks take half as much besides."},
    {"LOCKSTEP_DEVICE_STRAIGHT", text, "auto",
     "Whether data between hosts go from device to device without host memory (GPUDirect RDMA) where UCX "
     "carries the job and says that it can: `auto`, `off` (docs/gpu.md). One rank's `off` counts for all.",
     "auto|off"},
    {"LOCKSTEP_HOST_ID", text, "",
     "Ranks of one machine with different values count as ranks of different hosts, which share no memory; "
     "for tests, and for containers that must not."},
    {"LOCKSTEP_IFNAME", text, "",
     "Network interfaces whose addresses peers may connect to, as prefixes `eth,ib`, exact names `=eth0` or "
     "exclusions `^docker`; empty takes loopback when all ranks are on one host, else NCCL_SOCKET_IFNAME, "
     "GLOO_SOCKET_IFNAME, or the library's choice."},
    {"LOCKSTEP_INSECURE", flag, "0",
     "Allows ranks on several hosts without a secret: anyone who reaches the ports can then join the job."},
    {"LOCKSTEP_JOB_ID", text, "", "Name of the job; a peer of another job is refused."},
    {"LOCKSTEP_LAUNCHER", text, "",
     "Which source of rank and world size wins when several are present: lockstep, torchrun, openmpi, mpich, "
     "slurm or env."},
    {"LOCKSTEP_LOCAL_RANK", integer, "",
     "Number of this process among those of its host, from 0: lockstep-run tells the program, and the "
     "library does not read it."},
    {"LOCKSTEP_LOCAL_WORLD_SIZE", integer, "",
     "Number of ranks on this host; counts before what the launcher says."},
    {"LOCKSTEP_LOG", text, "warn", "How much is written to standard error.", "off|warn|info"},
    {"LOCKSTEP_NCCL_BLOCKING", text, "auto",
     "Whether NCCL's calls return when they are complete in device mode host_sync, so that programs may copy "
     "results to pageable memory without waiting for their streams; `auto`: on a GPU (docs/nccl.md).",
     "auto|0|1"},
    {"LOCKSTEP_RANK", integer, "", "Number of this process in the group, from 0."},
    {"LOCKSTEP_RENDEZVOUS", text, "",
     "Where ranks find each other: `tcp://host:port` (rank 0 listens there), `file:///path` on a file system "
     "that all ranks share, `local://name` for ranks of one user on one host, `memory://name` for threads of "
     "one process, or what `Rendezvous::address()` says (`served://host:port`)."},
    {"LOCKSTEP_SECRET", text, "",
     "Secret of the job, which authenticates peers; prefer LOCKSTEP_SECRET_FILE, before which it counts."},
    {"LOCKSTEP_SECRET_FILE", text, "", "File that holds the secret of the job."},
    {"LOCKSTEP_SEGMENT", bytes, "",
     "Bytes of one pipelined message, on rank 0 for all; empty lets the library choose.", "4K..1G"},
    {"LOCKSTEP_SPIN", integer, "",
     "Microseconds that a wait spins before it yields the core; empty lets the library choose.", "0..10000"},
    {"LOCKSTEP_START_TIMEOUT", duration, "120s", "How long start-up waits for missing ranks; 0 is no limit."},
    {"LOCKSTEP_STORE", text, "rank0",
     "Who listens at a `tcp://` rendezvous: rank 0, or the launcher already.", "rank0|launcher"},
    {"LOCKSTEP_TCP_CONGESTION", text, "",
     "TCP congestion control, for example cubic or bbr; empty lets the library choose."},
    {"LOCKSTEP_TCP_SOCKETS", integer, "",
     "TCP connections per peer, equal on all ranks; empty takes what calibration found, else 1.", "1..16"},
    {"LOCKSTEP_TIMEOUT", duration, "30m", "Deadline of one operation; 0 is none."},
    {"LOCKSTEP_TRANSPORTS", text, "auto",
     "Which transport carries the data, equal on all ranks: `auto` (shared memory within a host, and between "
     "hosts verbs where every rank has an RDMA device, else TCP), `shm+tcp` or `shm+verbs` to say which, or "
     "one for all: `shm`, `tcp`, `ucx`, `verbs` (docs/fabrics.md).",
     "auto|shm|tcp|ucx|verbs|shm+tcp|shm+verbs"},
    {"LOCKSTEP_TUNING", text, "",
     "File of `lockstep-bench --calibrate`, by which algorithms are chosen, or `built-in`; rank 0's is taken "
     "by all ranks. Empty: `tuning.json` in `$XDG_CONFIG_HOME/lockstep` or `~/.config/lockstep`, else "
     "built-in."},
    {"LOCKSTEP_UCX_FAILURES", text, "auto",
     "Whether UCX itself watches peers: `auto` (those on other hosts), `peer` (all), `none`. UCX's shared "
     "memory cannot, and is not used to peers that are watched; the session notices every death anyway.",
     "auto|peer|none"},
    {"LOCKSTEP_UCX_PUTS", text, "auto",
     "Whether large payloads are put into memory of `lockstep::allocate`: `auto` (to peers that UCX watches, "
     "where an RDMA device does it), `on` (to all that UCX watches; for tests: where UCX does it itself, as "
     "over TCP, it ends this process when a peer dies meanwhile), `off` (they go as tagged messages).",
     "auto|on|off"},
    {"LOCKSTEP_VERBS_DEVICE", text, "",
     "RDMA device of the verbs transport, as ibv_devinfo names it; of several, separated by commas, the "
     "ranks take one each in turn; empty takes the first with an active port."},
    {"LOCKSTEP_VERBS_GID_INDEX", integer, "",
     "Which of the device's addresses is used; by itself the library takes RoCE version 2 over IPv4, else "
     "link-local."},
    {"LOCKSTEP_VERBS_TIMEOUT", integer, "16",
     "A packet that is not acknowledged within 4.096 us times 2 to this is sent again, six times; by default "
     "after 268 ms.",
     "1..31"},
    {"LOCKSTEP_WORLD_SIZE", integer, "", "Number of processes in the group."},
});
static_assert(std::is_sorted(kVariables.begin(), kVariables.end(),
                             [](const Variable& a, const Variable& b) { return a.name < b.name; }));

constexpr std::string_view kPrefix = "LOCKSTEP_";

const Variable* find(std::string_view name) {
  const auto found =
      std::find_if(kVariables.begin(), kVariables.end(), [name](auto& v) { return v.name == name; });
  return found == kVariables.end() ? nullptr : &*found;
}

std::string_view nearest_variable(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Variable& variable : kVariables) names.push_back(variable.name);
  return nearest(name, names);
}

bool is_choice(std::string_view choices, std::string_view value) {
  while (!choices.empty()) {
    const std::size_t end = std::min(choices.find('|'), choices.size());
    if (choices.substr(0, end) == value) return true;
    choices.remove_prefix(std::min(end + 1, choices.size()));
  }
  return false;
}

/// The ends of a variable's range, as it writes them; both empty where it has none.
struct Range {
  std::string_view least, most;
};
Range range_of(const Variable& variable) {
  constexpr std::string_view kTo = "..";
  const std::size_t at = variable.choices.find(kTo);
  if (variable.kind == text || at == std::string_view::npos) return {};
  return {variable.choices.substr(0, at), variable.choices.substr(at + kTo.size())};
}

template <typename T>
bool in_range(const Variable& variable, std::string_view value, std::optional<T> (*parse)(std::string_view)) {
  const std::optional<T> number = parse(value);
  if (!number) return false;
  const Range range = range_of(variable);
  return range.most.empty() || (*number >= *parse(range.least) && *number <= *parse(range.most));
}

bool allows(const Variable& variable, std::string_view value) {
  switch (variable.kind) {
    case text:
      return variable.choices.empty() || is_choice(variable.choices, value);
    case integer:
      return in_range(variable, value, parse_integer);
    case flag:
      return parse_flag(value).has_value();
    case bytes:
      return in_range(variable, value, parse_bytes);
    case duration:
      return in_range(variable, value, parse_milliseconds);
  }
  return false;
}

std::string kind_of_value(const Variable& variable) {
  switch (variable.kind) {
    case text:
      return variable.choices.empty() ? "text" : "one of " + std::string(variable.choices);
    case integer:
      return "a whole number";
    case flag:
      return "0 or 1";
    case bytes:
      return "bytes, such as 512, 64K or 1M";
    case duration:
      return "a duration, such as 500ms, 30s or 5m";
  }
  return "";
}

/// What a value of this variable looks like: the type column of the docs and the advice of an error.
std::string description(const Variable& variable) {
  const Range range = range_of(variable);
  if (range.most.empty()) return kind_of_value(variable);
  return kind_of_value(variable) + ", from " + std::string(range.least) + " to " + std::string(range.most);
}

bool is_in_environment(std::string name) { return std::getenv(name.c_str()) != nullptr; }

/// Kubernetes tells every container of the services around it. One called "lockstep" gives
/// LOCKSTEP_SERVICE_HOST, LOCKSTEP_SERVICE_PORT, LOCKSTEP_PORT_80_TCP_ADDR ..., "lockstep-web" the same with
/// LOCKSTEP_WEB: nobody's mistake in writing, and always with the first two.
bool is_of_kubernetes(std::string_view name) {
  for (const std::string_view mark : {"_SERVICE_HOST", "_SERVICE_PORT", "_PORT"}) {
    for (std::size_t at = name.find(mark); at != std::string_view::npos; at = name.find(mark, at + 1)) {
      const std::string service(name.substr(0, at));
      if (is_in_environment(service + "_SERVICE_HOST") && is_in_environment(service + "_SERVICE_PORT"))
        return true;
    }
  }
  return false;
}

void warn_of_kubernetes(const std::string& name) {
  static std::once_flag once;
  std::call_once(once, [&] {
    warn("ignores " + name +
         " and its like, which Kubernetes sets for a service of that name (enableServiceLinks: false keeps "
         "them out)");
  });
}

Status check_entry(std::string_view entry) {
  const std::size_t equals = std::min(entry.find('='), entry.size());
  const std::string name(entry.substr(0, equals));
  const std::string value(entry.substr(std::min(equals + 1, entry.size())));
  const Variable* variable = find(name);
  if (variable == nullptr && is_of_kubernetes(name)) {
    warn_of_kubernetes(name);
    return Status();
  }
  if (variable == nullptr) {
    return Status(ErrorCode::configuration, "unknown variable " + name +
                                                " in the environment: did you mean " +
                                                std::string(nearest_variable(name)) + "? Otherwise unset it");
  }
  if (value.empty() || allows(*variable, value)) return Status();
  return Status(ErrorCode::configuration,
                name + "=" + value + " is not allowed: write " + description(*variable));
}

/// The variable's text in the environment, or its default; an empty value counts as not set.
std::string_view raw_value(const Variable& variable) {
  const char* value = std::getenv(variable.name.data());  // The table's names are literals and so end in NUL.
  return value != nullptr && *value != '\0' ? std::string_view(value) : variable.default_value;
}

/// An entry of a list in lines of the width of the documents.
std::string wrapped(std::string_view entry) {
  constexpr std::size_t kColumns = 120;
  std::string lines;
  std::string_view indent;
  while (indent.size() + entry.size() > kColumns) {
    const std::size_t space = entry.rfind(' ', kColumns - indent.size());
    if (space == std::string_view::npos) break;  // A word that is longer stays whole.
    lines += std::string(indent) + std::string(entry.substr(0, space)) + "\n";
    entry.remove_prefix(space + 1);
    indent = "  ";
  }
  return lines + std::string(indent) + std::string(entry) + "\n";
}

/// The parsed value, else the parsed default, else zero (of a variable whose default is "chosen by the
/// library").
template <typename T>
T parsed_value(std::string_view name, [[maybe_unused]] VariableKind kind,
               std::optional<T> (*parse)(std::string_view)) {
  const Variable* variable = find(name);
  assert(variable != nullptr && variable->kind == kind);
  const std::string_view value = raw_value(*variable);
  if (allows(*variable, value)) return *parse(value);
  return parse(variable->default_value).value_or(T{});
}

}  // namespace

std::span<const Variable> variables() noexcept { return kVariables; }

Status check_environment() {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::string_view(*entry).starts_with(kPrefix)) LOCKSTEP_RETURN_IF_ERROR(check_entry(*entry));
  }
  return Status();
}

std::string config_text(std::string_view name) {
  const Variable* variable = find(name);
  assert(variable != nullptr && variable->kind == text);
  const std::string_view value = raw_value(*variable);
  return std::string(allows(*variable, value) ? value : variable->default_value);
}

std::int64_t config_integer(std::string_view name) { return parsed_value(name, integer, parse_integer); }
bool config_flag(std::string_view name) { return parsed_value(name, flag, parse_flag); }
std::uint64_t config_bytes(std::string_view name) { return parsed_value(name, bytes, parse_bytes); }
std::int64_t config_milliseconds(std::string_view name) {
  return parsed_value(name, duration, parse_milliseconds);
}

bool config_is_set(std::string_view name) {
  assert(find(name) != nullptr);
  const char* value = std::getenv(std::string(name).c_str());
  return value != nullptr && *value != '\0';
}

ForeignText config_text_or(std::string_view name, std::initializer_list<const char*> others) {
  if (!config_is_set(name)) {
    for (const char* other : others) {
      const char* value = std::getenv(other);
      if (value != nullptr && *value != '\0') return {other, value};
    }
  }
  return {std::string(name), config_text(name)};
}

std::string variables_markdown() {
  std::string page =
      "# Environment variables\n\n"
      "An unknown `LOCKSTEP_` name, or a value that is not allowed, is an error at start. An empty value "
      "counts as not set.\n\n";
  for (const Variable& variable : kVariables) {
    std::string value = description(variable);
    if (!variable.default_value.empty()) value += "; default `" + std::string(variable.default_value) + "`";
    page += wrapped("- `" + std::string(variable.name) + "` (" + value + "): " + std::string(variable.help));
  }
  return page;
}

}  // namespace lockstep::internal
