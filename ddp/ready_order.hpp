// ReadyOrder: the order in which the gradients of a step became complete, noted by any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "lockstep/communicator.hpp"

namespace lockstep::internal {

class ReadyOrder {
 public:
  /// Starts to observe steps of `parameters` parameters.
  void observe(std::size_t parameters) {
    order_.assign(parameters, 0);
    observing_ = true;
  }
  bool observing() const noexcept { return observing_; }

  /// Parameter i is complete; once per step.
  void note(std::size_t i) noexcept {
    if (observing_) order_[count_.fetch_add(1, std::memory_order_relaxed)] = i;
  }

  /// Between steps: the step is observed anew.
  void restart() noexcept { count_.store(0, std::memory_order_relaxed); }

  /// Ends observing. All parameters: those noted, in their order, then the others as backward would have
  /// them.
  std::vector<std::size_t> take() {
    std::vector<std::size_t> all(order_.begin(), order_.begin() + static_cast<std::ptrdiff_t>(count_.load()));
    std::vector<bool> noted(order_.size());
    for (const std::size_t i : all) noted[i] = true;
    for (std::size_t i = order_.size(); i-- > 0;) {
      if (!noted[i]) all.push_back(i);
    }
    observing_ = false;
    return all;
  }

 private:
  bool observing_ = false;
  std::vector<std::size_t> order_;
  std::atomic<std::size_t> count_{0};
};

/// Collective. The order of rank 0, on all ranks. Ends observing.
inline std::vector<std::size_t> agreed_order(ReadyOrder& order, Communicator& communicator) {
  std::vector<std::size_t> agreed = order.take();
  static_assert(sizeof(std::size_t) == sizeof(std::uint64_t));
  communicator.broadcast(agreed.data(), agreed.size(), DataType::u64, 0);
  return agreed;
}

}  // namespace lockstep::internal
