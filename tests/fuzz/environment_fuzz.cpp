// The variables of the environment: every LOCKSTEP_ one, those of launchers, and rules for algorithms.
#include <cstdlib>

#include "collectives/select/names.hpp"
#include "lib/base/config.hpp"
#include "lib/bootstrap/launch.hpp"
#include "lib/bootstrap/limits.hpp"
#include "lib/net/interfaces.hpp"
#include "tests/fuzz/input.hpp"

namespace lockstep::internal::fuzz {
namespace {

constexpr const char* kOfLaunchers[] = {"RANK",
                                        "WORLD_SIZE",
                                        "LOCAL_WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "TORCHELASTIC_RUN_ID",
                                        "TORCHELASTIC_RESTART_COUNT",
                                        "PMIX_NAMESPACE",
                                        "PMIX_RANK",
                                        "PMIX_SERVER_URI2",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "PMI_FD",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "MPI_LOCALNRANKS",
                                        "SLURM_PROCID",
                                        "SLURM_STEP_NUM_TASKS",
                                        "SLURM_STEP_NUM_NODES",
                                        "SLURM_STEP_NODELIST",
                                        "SLURM_JOB_ID",
                                        "SLURM_STEP_ID",
                                        "SLURM_NTASKS",
                                        "SLURM_JOB_NUM_NODES",
                                        "SLURM_TASK_PID"};

std::string name(Input& input) {
  const std::size_t number = input.below(std::size(kOfLaunchers) + variables().size());
  if (number < std::size(kOfLaunchers)) return kOfLaunchers[number];
  return std::string(variables()[number - std::size(kOfLaunchers)].name);
}

/// Up to a line's end.
std::string line(Input& input) {
  std::string text;
  for (char next = 0; !input.empty() && (next = input.take<char>()) != '\n';) {
    if (next != 0) text += next;
  }
  return text;
}

void launch(Input& input) {
  Environment environment;
  while (!input.empty()) {
    const std::string variable = name(input);
    environment[variable] = line(input);
  }
  const auto launch = resolve_launch({}, environment, {10, 1});
  if (!launch.ok()) return require(launch.status().code() == ErrorCode::configuration);
  const Launch& found = launch.value();
  require(found.world_size >= 1 && found.world_size <= kMaxWorld);
  require(found.rank >= 0 && found.rank < found.world_size);
  require(found.world_size == 1 || !found.rendezvous.empty());
}

void look_up(const Variable& variable) {
  switch (variable.kind) {
    case VariableKind::text:
      static_cast<void>(config_text(variable.name));
      return;
    case VariableKind::integer:
      static_cast<void>(config_integer(variable.name));
      return;
    case VariableKind::flag:
      static_cast<void>(config_flag(variable.name));
      return;
    case VariableKind::bytes:
      static_cast<void>(config_bytes(variable.name));
      return;
    case VariableKind::duration:
      static_cast<void>(config_milliseconds(variable.name));
  }
}

void set(Input& input) {
  const Variable& variable = variables()[input.below(variables().size())];
  const std::string known(variable.name);
  const std::string name = input.flag() ? "LOCKSTEP_" + line(input) : known;
  if (setenv(name.c_str(), line(input).c_str(), 1) != 0) return;
  static_cast<void>(check_environment());
  look_up(variable);
  static_cast<void>(interface_filter_from_environment());
  unsetenv(name.c_str());
}

void force(Input& input) {
  const auto rules = AlgorithmRules::parse(input.text());
  if (!rules.ok()) return require(!rules.status().message().empty());
  for (int c = 0; c < kCollectiveCount; ++c) {
    const auto collective = static_cast<Collective>(c);
    const auto forced = rules.value().name_for(collective, std::uint64_t{1} << (c * 4));
    require(forced.empty() || resolve_algorithm(collective, forced, true).ok());
  }
}

}  // namespace

void read(Input input) {
  switch (input.below(3)) {
    case 0:
      return launch(input);
    case 1:
      return set(input);
    default:
      return force(input);
  }
}

}  // namespace lockstep::internal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lockstep::internal::fuzz::read({data, size});
  return 0;
}
