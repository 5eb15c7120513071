// The closing record of a step: the few bytes that every rank sends after its last bucket, and the verdict
// that all ranks draw from them. So a step that is bad anywhere is bad everywhere, and nobody has to be
// asked.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lib/base/env.hpp"
#include "lib/base/status.hpp"
#include "lockstep/ddp.hpp"

namespace lockstep::internal {

/// Why a rank's step is bad.
enum class Trouble : std::uint32_t {
  none = 0,
  marked_twice = 1,
  not_marked = 2,
  not_in_graph = 3,  ///< Static graph: marked, but not in the first step.
  not_finite = 4,
  wrong_result = 5,  ///< A hook's, of a bucket.
};

struct StepRecord {
  Trouble trouble = Trouble::none;
  std::uint32_t parameter = 0;  ///< The first that `trouble` is about; the bucket of a wrong result.
  Nanos computed = 0;           ///< From the step's begin to wait().
  std::uint64_t values = 0;     ///< Hash of the parameters, in steps that compare replicas; elements of a
                                ///< wrong result.
  std::uint64_t step = 0;       ///< Which it is: a hash of its number, its buckets and its reducer.
};
/// It travels as whole words.
inline constexpr std::size_t kRecordWords = sizeof(StepRecord) / sizeof(std::uint64_t);
static_assert(sizeof(StepRecord) == kRecordWords * sizeof(std::uint64_t));

/// The first trouble of this rank's step, noted by any thread.
class TroubleNote {
 public:
  void set(Trouble trouble, std::size_t parameter) noexcept;
  void clear() noexcept { packed_.store(0, std::memory_order_relaxed); }
  void write_to(StepRecord& record) const noexcept;

 private:
  std::atomic<std::uint64_t> packed_{0};
};

/// What is wrong with the step of rank r, without the rank: `marked "fc1.bias" (3) once too often`.
std::string describe(const StepRecord& record, std::span<const Parameter> parameters);
/// What to do about it.
std::string advice(Trouble trouble);

/// The same on all ranks: ok, or the trouble of the lowest rank that has one. `missing[r]` are the
/// parameters that rank r did not mark; empty where none did so. Pure.
Status judge(std::span<const StepRecord> records, std::span<const std::vector<std::size_t>> missing,
             std::span<const Parameter> parameters);

}  // namespace lockstep::internal
