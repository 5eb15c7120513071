// What one step of a run came to, over links, in a domain or in the flags' lines.
#pragma once

namespace lockstep::internal {

struct RunProgress {
  bool moved = false;
  bool done = false;
};

}  // namespace lockstep::internal
