#include "transports/tcp/switchboard_bell.hpp"

#include <sys/eventfd.h>

#include <cerrno>
#include <utility>

namespace lockstep::internal {

Result<std::unique_ptr<SwitchboardBell>> SwitchboardBell::hang(Switchboard& switchboard) {
  Fd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) return system_error("eventfd", errno);
  return std::unique_ptr<SwitchboardBell>(new SwitchboardBell(switchboard, std::move(fd)));
}

bool SwitchboardBell::changed() {
  if (switchboard_ == nullptr || switchboard_->changes() == seen_) return false;
  seen_ = switchboard_->drain(fd_.get());
  return true;
}

void SwitchboardBell::silence() {
  if (Switchboard* const heard = std::exchange(switchboard_, nullptr)) heard->detach(fd_.get());
}

}  // namespace lockstep::internal
