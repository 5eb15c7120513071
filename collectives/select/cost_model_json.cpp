// The cost model as JSON. In the text times are nanoseconds, and nanoseconds per byte.
#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "collectives/select/cost_model.hpp"
#include "lib/base/nearest.hpp"

namespace lockstep::internal {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSchema = "lockstep-tuning";
constexpr int kVersion = 1;
constexpr double kNano = 1e-9;
constexpr std::int64_t kLongestSpinMicroseconds = 10'000;  // Sleeping and waking costs hundreds at most.
constexpr double kMaxNanos = 1e9;  // A second for one message, or one byte, is no measurement.
constexpr int kMostLog2 = 63;      // Sizes are 64 bits wide.

Json nanos(double seconds) { return seconds / kNano; }

Json to_json(const LinkCost& cost, LinkClass link, Load load) {
  Json regimes = Json::array();
  for (const LinkCost::Regime& regime : cost.regimes) {
    regimes.push_back({{"up_to", regime.up_to == UINT64_MAX ? Json() : Json(regime.up_to)},
                       {"beta", nanos(regime.beta)},
                       {"gamma", nanos(regime.gamma)},
                       {"copy", nanos(regime.copy)}});
  }
  return {{"class", name_of(link)},       {"crowded", load == Load::crowded}, {"call", nanos(cost.call)},
          {"step", nanos(cost.step)},     {"alpha", nanos(cost.alpha)},       {"sync", nanos(cost.sync)},
          {"regimes", std::move(regimes)}};
}

/// A line for each entry, and for each element of its arrays: short, and changes of it are easy to see.
std::string in_lines(const Json& document) {
  std::string text = "{";
  for (const auto& [key, value] : document.items()) {
    text += (text.size() > 1 ? ",\n" : "\n") + Json(key).dump() + ": ";
    if (!value.is_array()) {
      text += value.dump();
      continue;
    }
    text += "[";
    for (std::size_t i = 0; i < value.size(); ++i) text += (i > 0 ? ",\n  " : "\n  ") + value[i].dump();
    text += "\n]";
  }
  return text + "\n}\n";
}

// ---- reading: every function throws std::runtime_error with what is wrong --------------------------------

[[noreturn]] void wrong(const std::string& what) { throw std::runtime_error(what); }

/// "key 'beta' not found" of "[json.exception.out_of_range.403] key 'beta' not found".
std::string plain_text(const std::exception& error) {
  const std::string text = error.what();
  const std::size_t end = text.starts_with("[json.exception") ? text.find("] ") : std::string::npos;
  return end == std::string::npos ? text : text.substr(end + 2);
}

/// Calls `read` for each element of `from[key]`, which may be absent; what it throws gets its place in front.
template <typename Read>
void read_each(const Json& from, const char* key, Read read) {
  if (!from.contains(key)) return;
  std::size_t at = 0;
  for (const Json& element : from.at(key)) {
    try {
      read(element);
    } catch (const std::exception& error) {
      wrong(std::string(key) + '[' + std::to_string(at) + "]: " + plain_text(error));
    }
    ++at;
  }
}

void check_keys(const Json& from) {
  static constexpr std::string_view kKeys[] = {"schema",
                                               "version",
                                               "fingerprint",
                                               "non_temporal_bytes",
                                               "spin_microseconds",
                                               "tcp_sockets",
                                               "network",
                                               "corrections",
                                               "links",
                                               "overrides",
                                               "pulls"};  // Of older files: calls time that themselves.
  for (const auto& [key, value] : from.items()) {
    if (std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys))
      wrong("there is no entry '" + key + "' (did you mean " + std::string(nearest(key, kKeys)) + "?)");
  }
}

/// The parser's get<T>() would make another number of one that T cannot hold.
template <typename T>
T read_whole(const Json& from, const char* key) {
  const Json& value = from.at(key);
  if (!value.is_number_unsigned() || !std::in_range<T>(value.get<std::uint64_t>()))
    wrong(std::string(key) + " is not a whole number from 0 to " +
          std::to_string(std::numeric_limits<T>::max()));
  return value.get<T>();
}

/// Into `value`, which stays as it is where there is none.
template <typename T>
void read_whole_if_there(const Json& from, const char* key, T& value) {
  if (from.contains(key)) value = read_whole<T>(from, key);
}

double read_cost(const Json& from, const char* key) {
  const double value = from.at(key).get<double>();
  if (!(value >= 0 && value <= kMaxNanos)) wrong(std::string(key) + " is not a time");
  return exact_cost(value * kNano);
}

LinkClass read_class(const Json& from) {
  const auto name = from.at("class").get<std::string>();
  for (int i = 0; i < kLinkClassCount; ++i) {
    if (name_of(static_cast<LinkClass>(i)) == name) return static_cast<LinkClass>(i);
  }
  wrong("there is no link class '" + name + "' (inline, staged, registered, tcp)");
}

Load read_load(const Json& from) { return from.at("crowded").get<bool>() ? Load::crowded : Load::spare; }

LinkCost read_link(const Json& from) {
  LinkCost cost;
  cost.call = read_cost(from, "call");
  cost.step = read_cost(from, "step");
  cost.alpha = read_cost(from, "alpha");
  cost.sync = read_cost(from, "sync");
  const Json& regimes = from.at("regimes");
  if (regimes.size() != kRegimes) wrong("a link has not " + std::to_string(kRegimes) + " regimes");
  for (std::size_t i = 0; i < kRegimes; ++i) {
    LinkCost::Regime& regime = cost.regimes[i];
    const bool endless = regimes[i].at("up_to").is_null();
    regime.up_to = endless ? UINT64_MAX : read_whole<std::uint64_t>(regimes[i], "up_to");
    if (i > 0 && regime.up_to <= cost.regimes[i - 1].up_to) wrong("the regimes' sizes do not rise");
    regime.beta = read_cost(regimes[i], "beta");
    regime.gamma = read_cost(regimes[i], "gamma");
    regime.copy = read_cost(regimes[i], "copy");
  }
  return cost;
}

Collective read_collective(const Json& from) {
  const auto name = from.at("collective").get<std::string>();
  if (const auto found = find_collective(name)) return *found;
  wrong("there is no collective '" + name + "'");
}

std::string read_algorithm(const Json& from, Collective collective) {
  const auto name = from.at("algorithm").get<std::string>();
  const auto known =
      find_algorithm(collective, {Medium::domain_staged, Medium::domain_registered, Medium::links}, name);
  if (!known.ok()) wrong(known.status().message());
  return name;
}

void read_correction(const Json& from, CostModel& model) {
  Correction correction;
  for (const Json& point : from.at("by_log2")) {
    if (!point.at(0).is_number_integer()) wrong("by_log2 has a size that is not a whole number");
    const auto log2 = point.at(0).get<std::int64_t>();
    if (log2 < 0 || log2 > kMostLog2) wrong("by_log2 has no size of 2^" + std::to_string(log2) + " bytes");
    correction.add(static_cast<int>(log2), point.at(1).get<double>());
  }
  const Collective collective = read_collective(from);
  model.corrections[{read_load(from), read_class(from), collective, read_algorithm(from, collective)}] =
      std::move(correction);
}

void read_fingerprint(const Json& from, CostModel& model) {
  if (from.is_null()) return;
  model.fingerprint =
      MachineFingerprint{from.at("cpu").get<std::string>(), from.at("kernel").get<std::string>(),
                         read_whole<int>(from, "cores")};
  model.calibrated_ranks = read_whole<int>(from, "ranks_per_host");
}

void read_network(const Json& from, CostModel& model) {
  model.network = {read_cost(from, "latency"), read_cost(from, "byte"), read_cost(from, "busy_latency"),
                   read_cost(from, "busy_byte")};
  if (!model.network.known()) wrong("the network's latency is 0");
}

Json to_json(const Network& network) {
  return {{"latency", nanos(network.latency)},
          {"byte", nanos(network.byte)},
          {"busy_latency", nanos(network.busy_latency)},
          {"busy_byte", nanos(network.busy_byte)}};
}

void read_overrides(const Json& from, CostModel& model) {
  model.overrides = from.get<std::string>();
  auto rules = AlgorithmRules::parse(model.overrides, "overrides");
  if (!rules.ok()) wrong(rules.status().message());
  model.rules = std::move(*rules);
}

void read_model(const Json& from, CostModel& model) {
  if (from.at("schema") != kSchema) wrong("schema is not " + std::string(kSchema));
  // Not said as it stands: it may be a list of lists so deep that printing it takes more stack than there is.
  const auto version = read_whole<std::uint64_t>(from, "version");
  if (version != kVersion)
    wrong("version " + std::to_string(version) + " is not " + std::to_string(kVersion));
  check_keys(from);
  if (from.contains("fingerprint")) read_fingerprint(from.at("fingerprint"), model);
  // Corrections belong to the costs that they were measured against.
  if (from.contains("links")) model.corrections.clear();
  read_each(from, "links", [&](const Json& link) {
    LinkCost& cost = model.cost(read_class(link), read_load(link));
    cost = read_link(link);
  });
  read_each(from, "corrections", [&](const Json& correction) { read_correction(correction, model); });
  if (from.contains("network")) read_network(from.at("network"), model);
  if (from.contains("overrides")) read_overrides(from.at("overrides"), model);
  read_whole_if_there(from, "non_temporal_bytes", model.non_temporal_bytes);
  read_whole_if_there(from, "spin_microseconds", model.spin_microseconds);
  if (model.spin_microseconds > kLongestSpinMicroseconds)
    wrong("spin_microseconds is not in 0 to " + std::to_string(kLongestSpinMicroseconds));
  read_whole_if_there(from, "tcp_sockets", model.tcp_sockets);
}

Result<CostModel> parse(std::string_view text, CostModel model) {
  try {
    read_model(Json::parse(text), model);
    return model;
  } catch (const std::exception& error) {  // Of the parser, or from wrong().
    return Status(ErrorCode::configuration, plain_text(error));
  }
}

}  // namespace

std::string to_json(const CostModel& model) {
  Json links = Json::array(), corrections = Json::array();
  for (const Load load : {Load::spare, Load::crowded}) {
    for (int i = 0; i < kLinkClassCount; ++i) {
      const auto link = static_cast<LinkClass>(i);
      links.push_back(to_json(model.cost(link, load), link, load));
    }
  }
  for (const auto& [key, correction] : model.corrections) {
    const auto& [load, link, collective, algorithm] = key;
    Json points = Json::array();
    for (const auto& [log2, factor] : correction.points()) points.push_back({log2, factor});
    corrections.push_back({{"collective", name_of(collective)},
                           {"algorithm", algorithm},
                           {"class", name_of(link)},
                           {"crowded", load == Load::crowded},
                           {"by_log2", std::move(points)}});
  }
  Json fingerprint;
  if (model.fingerprint) {
    fingerprint = {{"cpu", model.fingerprint->cpu},
                   {"cores", model.fingerprint->cores},
                   {"ranks_per_host", model.calibrated_ranks},
                   {"kernel", model.fingerprint->kernel}};
  }
  Json document{{"schema", kSchema},
                {"version", kVersion},
                {"fingerprint", std::move(fingerprint)},
                {"non_temporal_bytes", model.non_temporal_bytes},
                {"spin_microseconds", model.spin_microseconds},
                {"tcp_sockets", model.tcp_sockets},
                {"overrides", model.overrides},
                {"links", std::move(links)},
                {"corrections", std::move(corrections)}};
  if (model.network.known()) document["network"] = to_json(model.network);
  return in_lines(document);
}

Result<CostModel> parse_model(std::string_view text) { return parse(text, *builtin_model()); }

std::shared_ptr<const CostModel> builtin_model() {
  static const auto model = [] {
    auto parsed = parse(builtin_model_text(), {});
    if (!parsed.ok()) std::terminate();  // A test reads it.
    return std::make_shared<const CostModel>(std::move(*parsed));
  }();
  return model;
}

}  // namespace lockstep::internal
