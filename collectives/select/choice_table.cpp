#include "collectives/select/choice_table.hpp"

#include <algorithm>

namespace lockstep::internal {
namespace {

struct Candidate {
  const Algorithm* algorithm;
  double seconds;
};

/// Ascending time, except that `incumbent` (the best of the next smaller size) keeps its place unless another
/// wins clearly.
void order(std::vector<Candidate>& candidates, const Algorithm* incumbent) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.seconds < b.seconds; });
  const auto found = std::find_if(candidates.begin(), candidates.end(),
                                  [&](const Candidate& one) { return one.algorithm == incumbent; });
  if (found == candidates.end()) return;
  if (candidates.front().seconds < found->seconds * (1 - kSwitchGain)) return;
  std::rotate(candidates.begin(), found, found + 1);
}

}  // namespace

const Ranking& ChoiceTable::ranking(Collective collective, Medium medium, std::uint64_t bytes) {
  std::lock_guard lock(mutex_);
  return row(collective, medium).by_class[static_cast<std::size_t>(size_class(bytes))];
}

bool ChoiceTable::offers_pay(Collective collective, std::uint64_t bytes) {
  if (bytes <= kNeverOffered) return false;
  std::lock_guard lock(mutex_);
  int& from = places_[static_cast<std::size_t>(collective)].offers_from;
  if (from < 0) {
    const Row& staged = row(collective, Medium::domain_staged);
    const Row& registered = row(collective, Medium::domain_registered);
    const auto pays = [&](std::size_t size) {
      const double staged_takes = staged.best[size], registered_takes = registered.best[size];
      if (registered_takes == 0) return false;
      return staged_takes == 0 || registered_takes < staged_takes * (1 - kSwitchGain);
    };
    from = kSizeClasses;
    while (from > 0 && pays(static_cast<std::size_t>(from) - 1)) --from;
  }
  return size_class(bytes) >= from;
}

const ChoiceTable::Row& ChoiceTable::row(Collective collective, Medium medium) {
  auto& place = places_[static_cast<std::size_t>(collective)].rows[static_cast<std::size_t>(medium)];
  if (!place) place = make_row(collective, medium);
  return *place;
}

std::unique_ptr<const ChoiceTable::Row> ChoiceTable::make_row(Collective collective, Medium medium) const {
  auto row = std::make_unique<Row>();
  const Algorithm* incumbent = nullptr;
  for (std::size_t size = 0; size < kSizeClasses; ++size) {
    const std::uint64_t bytes = std::uint64_t{1} << size;
    std::vector<Candidate> candidates;
    for (const Algorithm& algorithm : algorithms()) {
      if (algorithm.collective != collective || algorithm.medium != medium) continue;
      if (!supports(algorithm, ground_, bytes)) continue;
      candidates.push_back({&algorithm, predict_call(*model_, ground_, algorithm, bytes)});
    }
    if (candidates.empty()) continue;
    order(candidates, incumbent);
    incumbent = candidates.front().algorithm;
    row->best[size] = candidates.front().seconds;
    for (const Candidate& one : candidates) row->by_class[size].push_back(one.algorithm);
  }
  return row;
}

std::shared_ptr<ChoiceTable> choice_table(std::shared_ptr<const CostModel> model, const CostGround& ground) {
  static std::mutex mutex;
  // Never destroyed: a thread may be making a communicator while the process ends.
  static auto& tables = *new std::vector<std::weak_ptr<ChoiceTable>>;
  std::lock_guard lock(mutex);
  std::erase_if(tables, [](const std::weak_ptr<ChoiceTable>& table) { return table.expired(); });
  for (const auto& known : tables) {
    const auto table = known.lock();
    if (table && table->ground() == ground && &table->model() == model.get()) return table;
  }
  auto table = std::make_shared<ChoiceTable>(std::move(model), ground);
  tables.push_back(table);
  return table;
}

}  // namespace lockstep::internal
