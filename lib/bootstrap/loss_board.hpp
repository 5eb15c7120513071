// LossBoard: which ranks are lost, as this process knows it, and who wants to be told.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "lib/bootstrap/loss.hpp"
#include "lib/net/reactor.hpp"

namespace lockstep::internal {

/// What it knows lives on the reactor's thread, where its callbacks run too. Members may be called from any
/// thread; remove() and first() by a caller that holds no lock which a callback takes.
class LossBoard : public std::enable_shared_from_this<LossBoard> {
 public:
  using Callback = std::function<void(const Loss&)>;

  /// Losses of `own_rank` are not for this process to know; nor are those of ranks that a group of `world`
  /// does not have, such as a launcher tells of to all groups, or a damaged message.
  static std::shared_ptr<LossBoard> make(int own_rank, int world);

  /// Soon. The first evidence per rank counts.
  void add(const Loss& loss);
  /// Soon, and at once for ranks lost before.
  void listen(std::uint64_t id, Callback callback);
  /// After it returned the callback is not running and never will.
  void remove(std::uint64_t id);
  /// Some lost rank, if any.
  std::optional<Loss> first();

 private:
  LossBoard(int own_rank, int world) : own_rank_(own_rank), world_(world), reactor_(Reactor::instance()) {}
  void tell(const Loss& loss);

  const int own_rank_;
  const int world_;
  Reactor& reactor_;
  std::map<int, Loss> losses_;
  std::map<std::uint64_t, Callback> callbacks_;
};

}  // namespace lockstep::internal
