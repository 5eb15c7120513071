// Memory that cannot be moved because a process has as many mappings as it may, for tests.
#pragma once

namespace lockstep::testing {

/// While it lives, no mapping of the library is moved in this process, children that it forks included.
class NoRoom {
 public:
  NoRoom();
  ~NoRoom();
  NoRoom(const NoRoom&) = delete;
  NoRoom& operator=(const NoRoom&) = delete;
};

}  // namespace lockstep::testing
