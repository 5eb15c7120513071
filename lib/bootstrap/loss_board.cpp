#include "lib/bootstrap/loss_board.hpp"

#include <utility>

namespace lockstep::internal {

std::shared_ptr<LossBoard> LossBoard::make(int own_rank, int world) {
  return std::shared_ptr<LossBoard>(new LossBoard(own_rank, world));
}

void LossBoard::add(const Loss& loss) {
  if (loss.rank < 0 || loss.rank >= world_) return;
  reactor_.post([self = shared_from_this(), loss] {
    if (loss.rank == self->own_rank_ || self->losses_.contains(loss.rank)) return;
    self->tell(loss);  // First: without memory for it this task runs again.
    self->losses_.emplace(loss.rank, loss);
  });
}

void LossBoard::tell(const Loss& loss) {
  for (const auto& [id, callback] : callbacks_) callback(loss);
}

void LossBoard::listen(std::uint64_t id, Callback callback) {
  reactor_.post([self = shared_from_this(), id, callback = std::move(callback)] {
    for (const auto& [rank, loss] : self->losses_) callback(loss);
    self->callbacks_[id] = callback;
  });
}

void LossBoard::remove(std::uint64_t id) {
  reactor_.run_there([&] { callbacks_.erase(id); });
}

std::optional<Loss> LossBoard::first() {
  std::optional<Loss> first;
  reactor_.run_there([&] {
    if (!losses_.empty()) first = losses_.begin()->second;
  });
  return first;
}

}  // namespace lockstep::internal
