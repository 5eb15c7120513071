// The collectives that end a step: every rank's StepRecord, and which gradients any rank had. And the small
// ones by which other calls agree.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ddp/step_record.hpp"
#include "lockstep/ddp.hpp"

namespace lockstep::internal {

/// The calls that gather a few words. They look alike to the communicator, and must not be taken for one
/// another.
enum class GatheringCall : std::uint8_t { begin_step, freeze, wait };

/// All ranks call the same members in the same order. One thread at a time.
class ClosingExchange {
 public:
  /// `urgent`, the same on all ranks: the exchange overtakes buckets that are not.
  ClosingExchange(Communicator& communicator, std::size_t parameters, bool urgent = false);

  /// There are as many parameters from now on.
  void resize(std::size_t parameters);

  /// Exchanges this rank's record and, unless null, which gradients it has (one byte each). Blocks: the ranks
  /// come together here anyway, and nothing is handed from thread to thread. Throws Error, on all ranks
  /// when they are in different steps.
  void exchange(const StepRecord& record, const std::vector<std::uint8_t>* has_gradient);

  std::span<const StepRecord> records() const noexcept { return records_; }
  /// What each rank needed until it came to wait().
  std::vector<Nanos> computed() const;
  /// Whether any rank has gradient i, as of the last exchange.
  bool used(std::size_t i) const noexcept;

  /// A set of parameters from each rank.
  std::vector<std::vector<std::size_t>> gather_sets(std::span<const std::size_t> mine);
  /// `words` from each rank, rank after rank. Throws Error(mismatch), on all ranks, when they are in
  /// different calls, or in those of different reducers.
  std::vector<std::uint64_t> gather_words(GatheringCall call, std::span<const std::uint64_t> words);

 private:
  void require_one_step() const;

  Communicator& communicator_;
  std::uint64_t number_;
  CallOptions options_;
  std::size_t parameters_;
  std::vector<StepRecord> records_;
  std::vector<std::uint64_t> used_;  // A bit for each parameter.
};

}  // namespace lockstep::internal
