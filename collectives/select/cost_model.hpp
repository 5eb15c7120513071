// CostModel: what a machine's links and memory cost, as measured by `lockstep-bench --calibrate` or assumed.
// All ranks of a job hold the same one, rank 0's, and decide by it (model_source.hpp).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>

#include "collectives/select/cost.hpp"
#include "collectives/select/names.hpp"
#include "collectives/select/network.hpp"
#include "lib/base/status.hpp"

namespace lockstep::internal {

/// How the ranks of a call reach each other.
enum class LinkClass : std::uint8_t {
  inline_line,  ///< Shared memory, payload inside the flags' lines.
  staged,       ///< Shared memory, private buffers.
  registered,   ///< Shared memory, registered buffers.
  tcp,          ///< Sockets; also what other links are taken to be like.
};
inline constexpr int kLinkClassCount = 4;
std::string_view name_of(LinkClass link);
LinkClass class_of(Medium medium);

/// Whether every rank of a host has a core of its own, or they take turns.
enum class Load : std::uint8_t { spare, crowded };
inline constexpr int kLoadCount = 2;

/// The costs of one class. A message's bytes cost more the less of it stays in cache: three regimes.
inline constexpr int kRegimes = 3;
struct LinkCost {
  double call = 0, step = 0, alpha = 0, sync = 0;  ///< As in MediumCost.
  struct Regime {
    std::uint64_t up_to = UINT64_MAX;  ///< Bytes of the call's larger side; the last regime has no end.
    double beta = 0, gamma = 0, copy = 0;
    bool operator==(const Regime&) const = default;
  };
  std::array<Regime, kRegimes> regimes;
  bool operator==(const LinkCost&) const = default;

  int regime_of(std::uint64_t bytes) const;
  MediumCost at(std::uint64_t bytes) const;
};

/// The machine a model was measured on. Another one may use it, and says so once.
struct MachineFingerprint {
  std::string cpu, kernel;
  int cores = 0;
  bool operator==(const MachineFingerprint&) const = default;
};

/// Factors that measured times had over predicted ones, by log2 of the call's bytes. Between two sizes the
/// smaller one's holds in part; outside them the nearest.
class Correction {
 public:
  static constexpr double kLeast = 0.375, kMost = 3;
  void add(int log2_bytes, double factor);
  double at(int log2_bytes) const;
  const std::map<int, double>& points() const { return points_; }
  bool operator==(const Correction&) const = default;

 private:
  std::map<int, double> points_;
};

struct CostModel {
  std::optional<MachineFingerprint> fingerprint;  ///< None: of no particular machine.
  int calibrated_ranks = 0;                       ///< Most ranks on one host while it was measured.
  std::array<std::array<LinkCost, kLinkClassCount>, kLoadCount> links;
  std::map<std::tuple<Load, LinkClass, Collective, std::string>, Correction> corrections;
  Network network;                       ///< Known: taken as it is, and not measured.
  std::string overrides;                 ///< As LOCKSTEP_ALGORITHMS, which goes before it.
  AlgorithmRules rules;                  ///< `overrides`, parsed.
  std::uint64_t non_temporal_bytes = 0;  ///< From here on stores past the caches pay; 0 = not measured.
  std::int64_t spin_microseconds = 0;    ///< Worth spinning before a sleep; 0 = not measured.
  int tcp_sockets = 1;                   ///< Connections per peer that pay.

  const LinkCost& cost(LinkClass link, Load load) const {
    return links[static_cast<std::size_t>(load)][static_cast<std::size_t>(link)];
  }
  LinkCost& cost(LinkClass link, Load load) {
    return links[static_cast<std::size_t>(load)][static_cast<std::size_t>(link)];
  }
};

/// A cost that survives a text and gives the same predictions on every machine: sums and products with whole
/// bytes of such costs are exact, so that no compiler's way of rounding lets two ranks decide differently.
double exact_cost(double seconds);

/// The model as JSON (docs/tuning.md has the format), and back. Errors name the place and the next step.
/// What a text leaves out is taken from the built-in model.
std::string to_json(const CostModel& model);
Result<CostModel> parse_model(std::string_view text);

/// The model for a machine that nobody has measured.
std::shared_ptr<const CostModel> builtin_model();
std::string_view builtin_model_text();

}  // namespace lockstep::internal
