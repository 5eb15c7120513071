// Spin: how a kernel waits for another rank, and what ends every such wait: what it waits for, an abort, a
// deadline, or that the rank has left.
#pragma once

#include <cstdint>

#include "lib/base/both.hpp"
#include "lib/device/sync/word.hpp"
#ifndef __CUDACC__
#include "lib/base/env.hpp"
#include "lib/device/host/host_kernels.hpp"
#endif

namespace lockstep::internal::sync {

/// All words lie in pinned memory of this rank.
struct SpinBounds {
  const std::uint32_t* abort = nullptr;  ///< Not 0: give up.
  std::uint32_t* report = nullptr;       ///< Takes a Report.
  std::uint64_t limit = 0;               ///< Nanoseconds from the kernel's start; 0 = none.
  const std::uint32_t* left = nullptr;   ///< A bit for each rank: it has left. Null: nobody does.
  /// Who gives up for another reason than the abort reports it, and waits for that.
  bool holds = false;
};

/// Why a kernel gave up.
struct Report {
  enum class Why : std::uint32_t { none = 0, aborted = 1, late = 2, sizes = 3, left = 4 };
  static constexpr std::uint32_t kMemberShift = 8;
  static LOCKSTEP_BOTH std::uint32_t make(Why why, int awaited) {
    return static_cast<std::uint32_t>(why) | static_cast<std::uint32_t>(awaited) << kMemberShift;
  }
  static Why why(std::uint32_t report) { return static_cast<Why>(report & ((1u << kMemberShift) - 1)); }
  static int awaited(std::uint32_t report) { return static_cast<int>(report >> kMemberShift); }
  /// The first one stays: kernels behind it in the stream find what it left undone, and would accuse others.
  static LOCKSTEP_BOTH bool is_first(const std::uint32_t* report) { return load_word(report) == 0; }
};

/// One thread's waits of one kernel. After the first that gave up all give up at once.
class Spin {
 public:
  LOCKSTEP_BOTH explicit Spin(const SpinBounds& bounds) : bounds_(bounds), begun_(now()) {}

  LOCKSTEP_BOTH bool over() const { return over_; }

  /// Until look() is true; false when it gave up. `awaited`: whom a report names.
  template <typename Look>
  LOCKSTEP_BOTH bool until(int awaited, Look look) {
    for (std::uint32_t polls = 1; !over_; ++polls) {
      if (look()) return true;
      if (polls % kPollsPerCheck == 0) {
        // Who has left had written everything by then.
        if (has_left(awaited)) return look() || give_up(Report::Why::left, awaited);
        check(awaited);
      }
      pause(polls);
    }
    return false;
  }

 private:
  // The abort word is a read over the bus: seldom.
#ifdef __CUDA_ARCH__
  static constexpr std::uint32_t kPollsPerCheck = 1024;
  static __device__ void pause(std::uint32_t) {}
  static __device__ std::uint64_t now() {
    std::uint64_t nanoseconds;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
    return nanoseconds;
  }
#elif defined(__CUDACC__)
  // nvcc's pass for the host: nobody calls it there.
  static constexpr std::uint32_t kPollsPerCheck = 1;
  static LOCKSTEP_BOTH void pause(std::uint32_t) {}
  static LOCKSTEP_BOTH std::uint64_t now() { return 0; }
#else
  static constexpr std::uint32_t kPollsPerCheck = 16;
  static void pause(std::uint32_t polls) { host_kernels::pause_poll(static_cast<int>(polls)); }
  static std::uint64_t now() { return static_cast<std::uint64_t>(real_env().now()); }
#endif

  LOCKSTEP_BOTH void check(int awaited) {
    if (load_word(bounds_.abort) != 0) {
      give_up(Report::Why::aborted, awaited);
    } else if (bounds_.limit != 0 && now() - begun_ > bounds_.limit) {
      give_up(Report::Why::late, awaited);
    }
  }
  LOCKSTEP_BOTH bool aborted(std::uint32_t polls) const {
    return polls % kPollsPerCheck == 0 && load_word(bounds_.abort) != 0;
  }
  LOCKSTEP_BOTH bool has_left(int rank) const {
    return bounds_.left != nullptr && (load_word(bounds_.left + rank / 32) >> rank % 32 & 1) != 0;
  }
  LOCKSTEP_BOTH bool give_up(Report::Why why, int awaited) {
    over_ = true;
    if (Report::is_first(bounds_.report)) store_word(bounds_.report, Report::make(why, awaited));
    for (std::uint32_t polls = 1; bounds_.holds && !aborted(polls); ++polls) pause(polls);
    return false;
  }

  const SpinBounds bounds_;
  const std::uint64_t begun_;
  bool over_ = false;
};

}  // namespace lockstep::internal::sync
