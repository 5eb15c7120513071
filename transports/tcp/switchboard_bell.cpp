#include "transports/tcp/switchboard_bell.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace lockstep::internal {

Result<std::unique_ptr<SwitchboardBell>> SwitchboardBell::hang(Switchboard& switchboard) {
  Fd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd) return system_error("eventfd", errno);
  return std::unique_ptr<SwitchboardBell>(new SwitchboardBell(switchboard, std::move(fd)));
}

bool SwitchboardBell::changed() {
  if (switchboard_ == nullptr) return false;
  const std::uint64_t changes = switchboard_->changes();
  if (changes == std::exchange(seen_, changes)) return false;
  std::uint64_t rung = 0;
  [[maybe_unused]] const ssize_t drained = ::read(fd_.get(), &rung, sizeof rung);
  return true;
}

void SwitchboardBell::silence() {
  if (Switchboard* const heard = std::exchange(switchboard_, nullptr)) heard->detach(fd_.get());
}

}  // namespace lockstep::internal
