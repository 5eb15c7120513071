#include "transports/fabric/fabric_driver.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace lockstep::internal {

Result<std::unique_ptr<FabricDriver>> FabricDriver::make(std::unique_ptr<Fabric> fabric) {
  Fd bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell) return system_error("eventfd", errno);
  return std::unique_ptr<FabricDriver>(new FabricDriver(std::move(fabric), std::move(bell)));
}

bool FabricDriver::progress() {
  const bool moved = fabric_->progress();
  if (moved && armed_ && !rung_) {
    const std::uint64_t one = 1;
    rung_ = ::write(bell_.get(), &one, sizeof one) == sizeof one;
  }
  return moved;
}

void FabricDriver::arm() {
  std::uint64_t count = 0;
  if (rung_) [[maybe_unused]]
    const ssize_t drained = ::read(bell_.get(), &count, sizeof count);
  rung_ = false;
  armed_ = true;
  fabric_->arm();
}

void FabricDriver::note_farewell(int peer) {
  if (fabric_->in_one_order()) left_.push_back(peer);
}

bool FabricDriver::has_left(int peer) const {
  return std::find(left_.begin(), left_.end(), peer) != left_.end();
}

void FabricDriver::append_poll_entries(std::vector<pollfd>& entries) const {
  entries.push_back({fabric_->descriptor(), POLLIN, 0});
  entries.push_back({bell_.get(), POLLIN, 0});
  if (fabric_->connections() >= 0) entries.push_back({fabric_->connections(), POLLIN, 0});
}

}  // namespace lockstep::internal
