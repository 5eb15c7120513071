#include "lib/reduce/hand_over.hpp"

#include <algorithm>

#include "lib/reduce/copy.hpp"

namespace lockstep::internal {
namespace {

/// Smaller copies gain less than the fence behind streams costs.
constexpr std::size_t kSmallest = 2 << 10;
/// Of either way in a row, so that one may be interrupted.
constexpr int kTrials = 2;
/// So many copies further the trials begin again: the wrong way then costs some hundredths.
constexpr int kPeriod = 512;
/// Streams have to be so much cheaper for the writer, because they may be dearer for the reader.
constexpr double kWorthIt = 4;

}  // namespace

void HandOver::copy(void* destination, const void* source, std::size_t bytes) noexcept {
  if (bytes < kSmallest) return copy_bytes(destination, source, bytes);
  const int turn = turn_;
  turn_ = (turn + 1) % kPeriod;
  if (turn >= 2 * kTrials) return copy_bytes(destination, source, bytes, streams_);
  const bool streamed = turn >= kTrials;
  double& best = streamed ? streams_cost_ : stores_cost_;
  const double cost = time_per_byte(streamed, destination, source, bytes);
  best = turn % kTrials == 0 ? cost : std::min(best, cost);
  if (turn == 2 * kTrials - 1) streams_ = stores_cost_ > kWorthIt * streams_cost_;
}

double HandOver::time_per_byte(bool streamed, void* destination, const void* source,
                               std::size_t bytes) noexcept {
  const Nanos before = env_.now();
  copy_bytes(destination, source, bytes, streamed);
  return static_cast<double>(env_.now() - before) / static_cast<double>(bytes);
}

}  // namespace lockstep::internal
