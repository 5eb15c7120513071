// SwitchboardBell: how a transport hears that its switchboard may have something new for it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "lib/net/fd.hpp"
#include "transports/tcp/switchboard.hpp"

namespace lockstep::internal {

class SwitchboardBell {
 public:
  /// The switchboard must be there until silence().
  static Result<std::unique_ptr<SwitchboardBell>> hang(Switchboard& switchboard);
  ~SwitchboardBell() { silence(); }
  SwitchboardBell(const SwitchboardBell&) = delete;
  SwitchboardBell& operator=(const SwitchboardBell&) = delete;

  /// Whether a take() may give something new since the last call. Cheap when not.
  bool changed();
  /// Becomes readable when changed() may be true.
  int descriptor() const { return fd_.get(); }
  /// Nothing changes any more, and the switchboard may go.
  void silence();

 private:
  SwitchboardBell(Switchboard& switchboard, Fd fd) : switchboard_(&switchboard), fd_(std::move(fd)) {
    switchboard_->attach(fd_.get());
  }
  Switchboard* switchboard_;  // Null once silent.
  const Fd fd_;               // Written by the switchboard.
  std::uint64_t seen_ = 0;
};

}  // namespace lockstep::internal
