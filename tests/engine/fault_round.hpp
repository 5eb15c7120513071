// One round of the random faults: a group, what goes wrong with which of its ranks, and which errors that
// may become.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "lockstep/error.hpp"

namespace lockstep::testing {

/// What becomes of one rank.
enum class Fault {
  none,          ///< It is stopped for a moment, which harms nothing.
  kill,          ///< Its process is killed.
  stop_kill,     ///< It is stopped, and killed a while later.
  stop,          ///< It is stopped until all others have given up by their deadlines, and then goes on.
  exit,          ///< It ends between two calls, without a word.
  leave,         ///< It drops its communicator with a call under way.
  abort,         ///< It aborts, between two calls or from another thread.
  differ,        ///< It makes another call.
  refuse,        ///< It makes a call that is wrong.
  never_call,    ///< It makes no more calls, and the others have a deadline.
  cut,           ///< Its connections break.
  kill_at_start  ///< It is killed while the group is formed.
};
inline constexpr int kFaults = static_cast<int>(Fault::kill_at_start) + 1;

/// In which group it happens: in the first one, in one of the same ranks the other way round that is split
/// off, or in one of two parts.
enum class Split { none, reversed, halves };

struct FaultRound {
  std::uint64_t seed = 0;
  std::string transports;  ///< "hosts": ranks on two hosts, shared memory and TCP.
  int world = 0;
  Fault fault = Fault::none;
  int victim = 0;  ///< In the first group.
  Split split = Split::none;
  std::uint64_t step = 0;  ///< Before or in which it happens.
  std::chrono::microseconds delay{0};
  bool continues = false;  ///< Of Fault::stop; else it is killed when the others have given up.
  bool at_once = false;    ///< Of Fault::abort: between two calls.

  bool ends_process() const;
  bool has_deadline() const { return fault == Fault::stop || fault == Fault::never_call; }
  bool is_in_part(int rank) const { return split != Split::halves || rank % 2 == victim % 2; }
  /// Ranks of the part where it happens, and which of them a rank of the whole is.
  int part_size() const;
  int in_part(int rank) const;
  std::string describe() const;
  /// What is wrong with this error on `rank` of a group in which the victim is `victim`; empty: nothing.
  std::string judge(const Error& error, int rank, int victim) const;
};

FaultRound draw_round(const std::string& transports, std::uint64_t seed);

}  // namespace lockstep::testing
