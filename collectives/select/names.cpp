#include "collectives/select/names.hpp"

#include <string>

#include "lib/base/config.hpp"
#include "lib/base/nearest.hpp"
#include "lib/base/parse.hpp"

namespace lockstep::internal {
namespace {

struct Place {
  std::string_view prefix;
  Medium medium;
};
constexpr Place kPlaces[] = {{"staged/", Medium::domain_staged},
                             {"registered/", Medium::domain_registered},
                             {"pulled/", Medium::domain_pulled},
                             {"links/", Medium::links}};

std::uint8_t number_of(const Algorithm* algorithm) {
  return static_cast<std::uint8_t>(algorithm - algorithms().data() + 1);
}

/// Cuts `text` at the first `mark`; the rest stays in `text`.
std::string_view cut(std::string_view& text, char mark) {
  const std::size_t at = text.find(mark);
  const std::string_view head = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view() : text.substr(at + 1);
  return head;
}

/// One rule as it was written, and where.
struct RuleText {
  std::string_view text, source;
};

Status bad_rule(const std::string& what, const RuleText& rule) {
  return Status(ErrorCode::configuration,
                std::string(rule.source) + ": " + what + " in '" + std::string(rule.text) +
                    "'; write for example all_reduce:0-16k=one_shot,16k-inf=ring;broadcast:*=binomial");
}

Result<Collective> collective_named(std::string_view name, const RuleText& rule) {
  if (const auto found = find_collective(name)) return *found;
  std::vector<std::string_view> names;
  for (int i = 0; i < kCollectiveCount; ++i) names.push_back(name_of(static_cast<Collective>(i)));
  return bad_rule("unknown collective '" + std::string(name) + "' (did you mean " +
                      std::string(nearest(name, names)) + "?)",
                  rule);
}

bool parse_range(std::string_view text, std::uint64_t& from, std::uint64_t& to) {
  from = 0;
  to = UINT64_MAX;
  if (text == "*") return true;
  const std::string_view low = cut(text, '-');
  const auto first = parse_bytes(low);
  const auto last = text == "inf" ? std::optional<std::uint64_t>(UINT64_MAX) : parse_bytes(text);
  if (!first || !last || *first >= *last) return false;
  from = *first;
  to = *last;
  return true;
}

}  // namespace

std::optional<Collective> find_collective(std::string_view name) {
  for (int i = 0; i < kCollectiveCount; ++i) {
    if (name_of(static_cast<Collective>(i)) == name) return static_cast<Collective>(i);
  }
  return std::nullopt;
}

std::string place_of(Medium medium) {
  for (const Place& place : kPlaces) {
    if (place.medium == medium) return std::string(place.prefix);
  }
  return {};
}

Result<std::uint8_t> resolve_algorithm(Collective collective, std::string_view name, bool domain) {
  for (const Place& place : kPlaces) {
    if (!name.starts_with(place.prefix)) continue;
    auto found = find_algorithm(collective, place.medium, name.substr(place.prefix.size()));
    if (!found.ok()) return found.status();
    return number_of(*found);
  }
  if (const std::size_t slash = name.find('/'); slash != std::string_view::npos) {
    return Status(ErrorCode::invalid_argument, "there is no '" + std::string(name.substr(0, slash + 1)) +
                                                   "' to run on: staged/, registered/, pulled/ or links/");
  }
  auto found = domain
                   ? find_algorithm(collective,
                                    {Medium::domain_staged, Medium::domain_registered, Medium::links}, name)
                   : find_algorithm(collective, Medium::links, name);
  if (!found.ok()) return found.status();
  return number_of(*found);
}

Result<AlgorithmRules> AlgorithmRules::parse(std::string_view text, std::string_view source) {
  AlgorithmRules parsed;
  while (!text.empty()) {
    const RuleText rule{cut(text, ';'), source};
    std::string_view parts = rule.text;
    auto collective = collective_named(cut(parts, ':'), rule);
    if (!collective.ok()) return collective.status();
    if (parts.empty()) return bad_rule("no range", rule);
    while (!parts.empty()) {
      std::string_view name = cut(parts, ',');
      const std::string_view range = cut(name, '=');
      Rule made{*collective, 0, 0, std::string(name)};
      if (!parse_range(range, made.from, made.to))
        return bad_rule("no valid range '" + std::string(range) + "'", rule);
      auto known = resolve_algorithm(*collective, name, true);
      if (!known.ok()) return bad_rule(known.status().message(), rule);
      parsed.rules_.push_back(std::move(made));
    }
  }
  return parsed;
}

std::string_view AlgorithmRules::name_for(Collective collective, std::uint64_t bytes) const {
  for (const Rule& rule : rules_) {
    if (rule.collective == collective && bytes >= rule.from && bytes < rule.to) return rule.name;
  }
  return {};
}

const AlgorithmRules& environment_rules() {
  static const AlgorithmRules rules = [] {
    auto parsed = AlgorithmRules::parse(config_text("LOCKSTEP_ALGORITHMS"));
    return parsed.ok() ? *parsed : AlgorithmRules();
  }();
  return rules;
}

Status check_algorithm_rules() { return AlgorithmRules::parse(config_text("LOCKSTEP_ALGORITHMS")).status(); }

Status rule_cannot_run(const Status& why) {
  return Status(ErrorCode::configuration, "LOCKSTEP_ALGORITHMS names what cannot run this call here: " +
                                              why.message() + "; change it on all ranks");
}

}  // namespace lockstep::internal
