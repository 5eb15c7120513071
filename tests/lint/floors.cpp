#include "tests/lint/floors.hpp"

#include <algorithm>
#include <filesystem>
#include <set>

namespace lockstep::internal::lint {
namespace {

/// "lib/net/" means the folder and what is below it, "transports/*" the files that lie directly in it.
struct Floor {
  std::string_view where;
  std::vector<std::string_view> stands_on;  ///< Beside itself and the public headers.
};

/// The first row that matches a file is its floor.
const std::vector<Floor>& floors() {
  static const std::vector<Floor> all = {
      {"include/", {}},
      {"lib/base/", {}},
      {"lib/reduce/", {"lib/base/"}},
      {"lib/net/", {"lib/base/"}},
      {"lib/memory/", {"lib/base/", "lib/net/"}},
      {"lib/bootstrap/", {"lib/base/", "lib/net/", "lib/memory/"}},
      {"lib/device/", {"lib/base/", "lib/net/", "lib/memory/", "lib/reduce/"}},
      // The contracts; each transport knows them and not its neighbours.
      {"transports/*", {"lib/"}},
      {"transports/shm/", {"transports/*", "lib/"}},
      {"transports/tcp/", {"transports/*", "lib/"}},
      {"transports/sim/", {"transports/*", "lib/"}},
      {"transports/mixed/", {"transports/*", "lib/"}},
      // What links over UCX and over verbs share.
      {"transports/fabric/", {"transports/*", "lib/"}},
      {"transports/ucx/", {"transports/fabric/", "transports/*", "lib/"}},
      // The two ends of a reliable connection tell each other where they are over a connection of the
      // switchboard.
      {"transports/verbs/",
       {"transports/fabric/", "transports/tcp/switchboard.hpp", "transports/tcp/switchboard_bell.hpp",
        "transports/*", "lib/"}},
      {"transports/cuda_ipc/", {"transports/*", "lib/"}},
      // Programs do no I/O, and whoever proves them needs nothing else.
      {"collectives/programs/", {"lib/base/"}},
      {"collectives/verify/", {"collectives/programs/", "lib/base/"}},
      {"collectives/select/", {"collectives/programs/", "transports/*", "lib/"}},
      {"collectives/engine/", {"collectives/programs/", "collectives/select/", "transports/*", "lib/"}},
      {"collectives/device/", {"collectives/", "transports/", "lib/"}},
      // The public face puts the parts together.
      {"collectives/*", {"collectives/", "transports/", "lib/"}},
      {"ddp/", {"collectives/", "lib/"}},
      // The kernels' own benchmark; --explain and --programs; and what the library will choose.
      {"bench/reduce_bench.cpp", {"lib/"}},
      {"bench/explain.cpp", {"bench/", "collectives/programs/", "collectives/select/"}},
      {"bench/programs.", {"bench/", "collectives/programs/"}},
      {"bench/choice.", {"bench/", "collectives/", "lib/base/"}},
      // The bounds beside which collectives on devices are measured.
      {"bench/device/floors/", {"bench/", "lib/"}},
      // Kernels of its own, which make and check the data.
      {"bench/device/check.", {"bench/", "lib/device/"}},
      {"bench/device/pattern.", {"bench/", "lib/base/"}},
      // The synthetic model multiplies as the examples do.
      {"bench/ddp/", {"bench/", "examples/matrix/"}},
      {"bench/calibrate", {"bench/", "collectives/", "lib/base/"}},
      {"bench/machine.cpp", {"bench/", "lib/base/"}},
      // What the machine consists of, what carries a link, and what went over it.
      {"bench/host_topology.cpp", {"bench/", "lib/base/", "lib/net/"}},
      {"bench/topology.cpp", {"bench/", "collectives/"}},
      {"bench/traffic.cpp", {"bench/", "collectives/"}},
      // What may carry it, by option or variable.
      {"bench/transport_option.cpp", {"bench/", "collectives/", "lib/base/"}},
      // Which types an operator is defined for.
      {"bench/sweep.cpp", {"bench/", "lib/reduce/", "lib/base/"}},
      // The limit of descriptors, as lockstep-run raises it.
      {"bench/startup.cpp", {"bench/", "lib/net/"}},
      {"bench/", {}},
      {"examples/", {}},
      {"integrations/", {}},
  };
  return all;
}

bool matches(std::string_view where, std::string_view path) {
  if (!where.ends_with('*')) return path.starts_with(where);
  where.remove_suffix(1);
  return path.starts_with(where) && path.find('/', where.size()) == std::string_view::npos;
}

bool may_include(const Floor& floor, std::string_view target) {
  const auto holds = [target](std::string_view where) { return matches(where, target); };
  return holds("include/") || holds(floor.where) ||
         std::any_of(floor.stands_on.begin(), floor.stands_on.end(), holds);
}

/// What a line includes with quotes, or empty.
std::string_view included(const Line& line) {
  constexpr std::string_view kStart = "#include \"";
  if (!std::string_view(line.strings).starts_with(kStart)) return {};
  const std::string_view rest = std::string_view(line.strings).substr(kStart.size());
  return rest.substr(0, rest.find('"'));
}

/// The file of the project that is meant, or empty: public headers are written from include/, all others from
/// the root.
std::string resolve(std::string_view name, std::string_view from, const std::set<std::string_view>& paths) {
  const std::filesystem::path beside = (std::filesystem::path(from).parent_path() / name).lexically_normal();
  for (const std::string& path : {"include/" + std::string(name), std::string(name), beside.string()}) {
    if (paths.contains(path)) return path;
  }
  return {};
}

}  // namespace

std::vector<std::string> floor_findings(const std::vector<SourceFile>& files) {
  std::set<std::string_view> paths;
  for (const SourceFile& file : files) paths.insert(file.path);
  std::vector<std::string> findings;
  for (const SourceFile& file : files) {
    const auto floor = std::find_if(floors().begin(), floors().end(),
                                    [&file](const Floor& f) { return matches(f.where, file.path); });
    if (floor == floors().end()) {
      findings.push_back(file.path + " belongs to no floor: add its folder to tests/lint/floors.cpp");
      continue;
    }
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      const std::string target = resolve(included(file.lines[i]), file.path, paths);
      if (target.empty() || may_include(*floor, target)) continue;
      findings.push_back(location(file, i) + std::string(floor->where) + " may not include " + target);
    }
  }
  return findings;
}

}  // namespace lockstep::internal::lint
