// LossWatch: whether one of the ranks that a set-up waits for is lost.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>

#include "lib/base/status.hpp"
#include "lib/bootstrap/session.hpp"

namespace lockstep::internal {

/// The first loss among `ranks` from now on, also of ranks lost before. `id` is one that Session::on_loss
/// does not have yet; `session` and `ranks` outlive it.
class LossWatch {
 public:
  LossWatch(Session& session, std::uint64_t id, std::span<const int> ranks);
  ~LossWatch();
  LossWatch(const LossWatch&) = delete;
  LossWatch& operator=(const LossWatch&) = delete;

  /// peer_lost, by the rank's name; ok while there is none.
  Status status();

 private:
  Session& session_;
  const std::uint64_t id_;
  std::mutex mutex_;
  std::optional<Loss> loss_;
};

}  // namespace lockstep::internal
