#include "collectives/select/model_source.hpp"

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "lib/base/config.hpp"
#include "lib/base/core_set.hpp"
#include "lib/base/hash.hpp"
#include "lib/base/log.hpp"
#include "lib/base/machine.hpp"
#include "lib/bootstrap/limits.hpp"
#include "lib/bootstrap/user_config.hpp"
#include "lib/bootstrap/wire.hpp"

namespace lockstep::internal {
namespace {

constexpr std::string_view kBuiltin = "built-in";
static_assert(kMaxModelBytes + 2 * kMaxKeyBytes < kMaxNoticeBytes);

/// The text and where it is from.
struct Text {
  std::string source = std::string(kBuiltin);
  std::string content;  ///< Empty for the built-in model: every rank has that.
};

Status unusable(const std::string& path, const std::string& why) {
  return Status(ErrorCode::configuration, "cannot use the tuning file " + path + ": " + why +
                                              "; write it anew with lockstep-bench --calibrate --json " +
                                              path + ", or set LOCKSTEP_TUNING=built-in");
}

Result<Text> read_text(const std::string& path) {
  std::error_code why;  // One that cannot be looked at cannot be opened either.
  const std::filesystem::file_status facts = std::filesystem::status(path, why);
  // A pipe that nobody writes to would be waited for without end.
  if (std::filesystem::exists(facts) && !std::filesystem::is_regular_file(facts))
    return unusable(path, "it is no ordinary file");
  std::ifstream file(path, std::ios::binary);
  if (!file) return unusable(path, "it cannot be opened");
  std::string content(kMaxModelBytes + 1, '\0');
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  content.resize(static_cast<std::size_t>(file.gcount()));
  if (file.bad()) return unusable(path, "it cannot be read");
  if (content.size() > kMaxModelBytes) return unusable(path, "it is too large");
  if (content.empty()) return unusable(path, "it is empty");
  return Text{path, std::move(content)};
}

/// Who runs as another user than HOME is of (a container's, a service's), or has no ticket for it, has
/// measured nothing there.
void warn_of_a_closed_place(const std::string& path) {
  warn("this user may not look for the tuning file " + path +
       ": the built-in costs are used; LOCKSTEP_TUNING=built-in says so");
}

Result<Text> find_text() {
  if (const std::string named = config_text("LOCKSTEP_TUNING"); !named.empty())
    return named == kBuiltin ? Text{} : read_text(named);
  const std::string path = default_model_path();
  std::error_code why;  // One that cannot be looked at is there, and an error.
  const bool absent = std::filesystem::status(path, why).type() == std::filesystem::file_type::not_found;
  if (path.empty() || absent) return Text{};
  if (why != std::errc::permission_denied) return read_text(path);
  warn_of_a_closed_place(path);
  return Text{};
}

/// A job on all cores of this machine, or on as many as this process may use: a container, or ranks that are
/// bound, may see the others and not have them.
bool is_of_here(const MachineFingerprint& measured) {
  MachineFingerprint here = this_machine();
  if (measured == here) return true;
  here.cores = static_cast<int>(allowed_cores().count());
  return measured == here;
}

std::string describe(const MachineFingerprint& machine) {
  return machine.cpu + ", " + std::to_string(machine.cores) + " cores, kernel " + machine.kernel;
}

void warn_of_another_machine(const std::string& path, const CostModel& model) {
  if (!model.fingerprint || is_of_here(*model.fingerprint)) return;
  warn("the tuning file " + path + " was measured on another machine (" + describe(*model.fingerprint) +
       "; this is " + describe(this_machine()) +
       "): used all the same; lockstep-bench --calibrate measures this one");
}

Result<Text> load_text() {
  auto text = find_text();
  if (!text.ok() || text->content.empty()) return text;
  const auto model = parse_model(text->content);
  if (!model.ok()) return unusable(text->source, model.status().message());
  warn_of_another_machine(text->source, model.value());
  return text;
}

/// The built-in model counts too: it fills what the file leaves out.
std::uint64_t hash_of(std::string_view content) { return fnv1a(content, fnv1a(builtin_model_text())); }

}  // namespace

std::string default_model_path() {
  const std::string directory = user_config_directory();
  return directory.empty() ? directory : directory + "/tuning.json";
}

MachineFingerprint this_machine() { return {processor_name(), kernel_release(), online_cores()}; }

std::string hash_text(std::uint64_t hash) {
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

std::string announce_model() {
  auto text = load_text();
  const std::string content = text.ok() ? text->content : std::string();
  std::string announcement;
  WireWriter writer(announcement);
  writer.integer(hash_of(content));
  writer.integer(std::uint64_t{config_bytes("LOCKSTEP_SEGMENT")});
  writer.text(text.ok() ? std::string() : text.status().message().substr(0, kMaxKeyBytes));
  writer.text(text.ok() ? text->source.substr(0, kMaxKeyBytes) : std::string());
  writer.text(content);
  return announcement;
}

Result<SharedModel> adopt_model(const std::string& announcement) {
  std::uint64_t hash = 0, segment = 0;
  std::string_view error, source, content;
  WireReader reader(as_bytes(announcement));
  if (!reader.integer(hash) || !reader.integer(segment) || !reader.text(kMaxKeyBytes, error) ||
      !reader.text(kMaxKeyBytes, source) || !reader.text(kMaxModelBytes, content)) {
    return Status(ErrorCode::unauthorized, "rank 0's cost model in the store is damaged");
  }
  if (!error.empty()) return Status(ErrorCode::configuration, "rank 0 " + std::string(error), 0);
  if (hash_of(content) != hash) {
    return Status(
        ErrorCode::configuration,
        "this rank has another cost model than rank 0 (" + hash_text(hash_of(content)) + ", rank 0 " +
            hash_text(hash) + ", " + std::string(source) +
            "): the ranks would choose different algorithms; install one version of lockstep on all "
            "hosts",
        0);
  }
  SharedModel shared;
  shared.source = source;
  shared.hash = hash;
  shared.segment_bytes = segment;
  if (content.empty()) return shared;
  auto model = parse_model(content);
  if (!model.ok()) return unusable(shared.source, model.status().message());
  shared.network = model->network;
  shared.model = std::make_shared<const CostModel>(std::move(*model));
  return shared;
}

}  // namespace lockstep::internal
