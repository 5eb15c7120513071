// A process that the kernel refuses a system call, as under a container's seccomp profile.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>

namespace lockstep::testing {

/// An argument of the call, counted from 0.
struct CallArgument {
  unsigned index, value;
};

/// From now on, for good: call it in a child. Of all such calls, or those with that argument. Whether filters
/// can be had here.
inline bool refuse_call(unsigned number, unsigned error, std::optional<CallArgument> with = {}) {
  const auto [index, value] = with.value_or(CallArgument{});
  const auto at =
      static_cast<std::uint32_t>(offsetof(seccomp_data, args) + index * sizeof(seccomp_data::args[0]));
  const std::uint8_t otherwise = with ? 1 : 0;
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, otherwise),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(steps), steps};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

}  // namespace lockstep::testing
