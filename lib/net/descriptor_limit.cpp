#include "lib/net/descriptor_limit.hpp"

namespace lockstep::internal {

rlimit raise_descriptor_limit() {
  rlimit before{};
  if (getrlimit(RLIMIT_NOFILE, &before) != 0) return {RLIM_INFINITY, RLIM_INFINITY};
  rlimit all = before;
  all.rlim_cur = all.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &all);
  return before;
}

}  // namespace lockstep::internal
