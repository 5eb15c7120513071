// HostileRank: an engine on a clock of the fuzzer's, whose peers are the bytes.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/engine/engine.hpp"
#include "tests/engine/made_up_group.hpp"
#include "tests/fuzz/input.hpp"

namespace lockstep::internal::fuzz {

inline constexpr Nanos kSecond = 1'000'000'000;

class HandEnv final : public Env {
 public:
  Nanos now() noexcept override { return time; }
  std::uint64_t random() noexcept override { return 7; }
  void wake_at(Nanos) noexcept override {}
  Nanos time = 1'000 * kSecond;
};

/// Rank 0. Whatever was started ends with the group, at the latest.
class HostileRank {
 public:
  HostileRank(int world, std::unique_ptr<Transport> transport)
      : engine_(std::make_shared<Engine>(testing::made_up_group(0, world, "here"), std::move(transport), env_,
                                         nullptr)) {
    static const auto choices = engine_->choices().shared_from_this();  // Computed once, not in each run.
  }
  ~HostileRank() {
    engine_->request_revoke(Status(ErrorCode::aborted, "enough"));
    for (int i = 0; i < 40 && !all_done(); ++i) step(kSecond);
    require(all_done());
    for (Operation* operation : operations_) engine_->release(operation);
  }
  HostileRank(const HostileRank&) = delete;
  HostileRank& operator=(const HostileRank&) = delete;

  template <class What>
  void start(const What& what) {
    operations_.push_back(engine_->start(what));
  }
  /// That stays until the end.
  std::byte* memory(std::size_t bytes) {
    buffers_.push_back(std::make_unique<std::byte[]>(bytes));
    return buffers_.back().get();
  }
  void step(Nanos time) {
    env_.time += time;
    for (int round = 0; round < 100 && engine_->step(); ++round) continue;
  }

 private:
  bool all_done() const {
    return std::all_of(operations_.begin(), operations_.end(),
                       [](const Operation* one) { return one->done.load(); });
  }

  HandEnv env_;
  std::vector<std::unique_ptr<std::byte[]>> buffers_;
  std::shared_ptr<Engine> engine_;
  std::vector<Operation*> operations_;
};

}  // namespace lockstep::internal::fuzz
