// ChoiceTable: the algorithms of every collective in order of preference, by size. Computed from a cost model
// when a collective is first called, once per process for communicators alike; every rank computes the same.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "collectives/select/predict.hpp"

namespace lockstep::internal {

/// The larger algorithm is taken only where it is predicted to win by this: no zig-zag between near equals.
inline constexpr double kSwitchGain = 0.05;
/// So little is copied in the time that an exchange of offers takes.
inline constexpr std::uint64_t kNeverOffered = 1 << 10;
/// Sizes by floor(log2(bytes)); the last stands for all above.
inline constexpr int kSizeClasses = 27;
inline int size_class(std::uint64_t bytes) { return std::min(log2_class(bytes), kSizeClasses - 1); }

/// Best first; those of one medium that take the size.
using Ranking = std::vector<const Algorithm*>;

class ChoiceTable : public std::enable_shared_from_this<ChoiceTable> {
 public:
  ChoiceTable(std::shared_ptr<const CostModel> model, const CostGround& ground)
      : model_(std::move(model)), ground_(ground) {}

  /// Valid as long as the table. Thread-safe.
  const Ranking& ranking(Collective collective, Medium medium, std::uint64_t bytes);
  /// Whether a call in a domain should find out if all buffers are registered, which costs little where none
  /// are: true from that size on from which the registered program is predicted to win. Thread-safe.
  bool offers_pay(Collective collective, std::uint64_t bytes);

  const CostModel& model() const { return *model_; }
  const CostGround& ground() const { return ground_; }

 private:
  struct Row {
    std::array<Ranking, kSizeClasses> by_class;
    std::array<double, kSizeClasses> best{};  ///< Seconds of the first; 0 where there is none.
  };
  struct Place {
    std::array<std::unique_ptr<const Row>, kMedia> rows;  ///< By medium.
    int offers_from = -1;                                 ///< Size class; -1 = not computed.
  };
  const Row& row(Collective collective, Medium medium);
  std::unique_ptr<const Row> make_row(Collective collective, Medium medium) const;

  const std::shared_ptr<const CostModel> model_;
  const CostGround ground_;
  std::mutex mutex_;
  std::array<Place, kCollectiveCount> places_;
};

/// The process's table for a model and a ground; made at first use, and gone with the last communicator that
/// holds it.
std::shared_ptr<ChoiceTable> choice_table(std::shared_ptr<const CostModel> model, const CostGround& ground);

}  // namespace lockstep::internal
