#include "tests/engine/fault_round.hpp"

#include <algorithm>
#include <iterator>
#include <random>
#include <vector>

namespace lockstep::testing {
namespace {

constexpr const char* kNames[] = {"none",  "kill",   "stop_kill", "stop",       "exit", "leave",
                                  "abort", "differ", "refuse",    "never_call", "cut",  "kill_at_start"};
static_assert(std::size(kNames) == kFaults);
constexpr std::uint64_t kMostSteps = 24;
constexpr std::uint64_t kLongestDelay = 2'000;  // Microseconds: some steps.

bool has_connections(const std::string& transports) { return transports == "tcp" || transports == "hosts"; }

/// By turns. Deadlines and starts that somebody misses take their time, so these have one turn in so many.
Fault fault_of(std::uint64_t seed, const std::string& transports) {
  constexpr std::uint64_t kSlowOneIn = 8;
  constexpr Fault kSlow[] = {Fault::stop, Fault::never_call, Fault::kill_at_start};
  if (seed % kSlowOneIn == 0) return kSlow[seed / kSlowOneIn % std::size(kSlow)];
  std::vector<Fault> quick{Fault::none,  Fault::kill,  Fault::stop_kill, Fault::exit,
                           Fault::leave, Fault::abort, Fault::differ,    Fault::refuse};
  if (has_connections(transports)) quick.push_back(Fault::cut);
  return quick[(seed - seed / kSlowOneIn) % quick.size()];
}

/// The code that the fault becomes at its author, or at the others.
std::vector<ErrorCode> codes_of(Fault fault, bool author) {
  switch (fault) {
    case Fault::none:
      return {};
    case Fault::stop:  // It may be killed in the end.
      return {ErrorCode::timeout, ErrorCode::peer_lost};
    case Fault::never_call:
      return {ErrorCode::timeout};
    case Fault::leave:  // All that was under way may have ended, and over links the word may be lost.
      return {ErrorCode::aborted, ErrorCode::peer_lost};
    case Fault::abort:
      return {ErrorCode::aborted};
    case Fault::differ:
      return {ErrorCode::mismatch};
    case Fault::refuse:
      return {ErrorCode::refused, author ? ErrorCode::invalid_argument : ErrorCode::refused};
    case Fault::kill_at_start:
      return {ErrorCode::peer_lost, ErrorCode::timeout};
    default:
      return {ErrorCode::peer_lost};
  }
}

}  // namespace

bool FaultRound::ends_process() const {
  return fault == Fault::kill || fault == Fault::stop_kill || fault == Fault::exit ||
         fault == Fault::kill_at_start || (fault == Fault::stop && !continues);
}

int FaultRound::part_size() const {
  int size = 0;
  for (int rank = 0; rank < world; ++rank) size += is_in_part(rank) ? 1 : 0;
  return size;
}

int FaultRound::in_part(int rank) const {
  if (split == Split::reversed) return world - 1 - rank;
  return split == Split::halves ? rank / 2 : rank;
}

std::string FaultRound::describe() const {
  constexpr const char* kSplits[] = {"", ", in a group split off", ", in one of two halves"};
  return "seed " + std::to_string(seed) + ": " + transports + ", " + std::to_string(world) + " ranks, " +
         kNames[static_cast<int>(fault)] + " of rank " + std::to_string(victim) + " at step " +
         std::to_string(step) + " + " + std::to_string(delay.count()) + " us" +
         kSplits[static_cast<int>(split)];
}

std::string FaultRound::judge(const Error& error, int rank, int in_group) const {
  const auto codes = codes_of(fault, rank == in_group);
  const std::string text = error.what();
  if (std::find(codes.begin(), codes.end(), error.code()) == codes.end()) return "wrong code: " + text;
  // Who was stopped may find that the others have given up and gone, and say why.
  if (fault == Fault::stop && rank == in_group &&
      text.find("it ended after a failure: the deadline") != std::string::npos)
    return "";
  const bool named = text.find("rank " + std::to_string(in_group)) != std::string::npos;
  if (fault == Fault::cut) return error.culprit() < 0 ? "nobody is to blame: " + text : "";  // Either end.
  // Of a deadline and of two calls that differ nobody is the culprit; but of the calls both are named.
  const bool nobody = error.code() == ErrorCode::timeout || error.code() == ErrorCode::mismatch;
  if (error.culprit() != in_group && !(nobody && error.culprit() == -1))
    return "wrong culprit " + std::to_string(error.culprit()) + ": " + text;
  if (!named && error.code() != ErrorCode::timeout) return "not named: " + text;
  return "";
}

FaultRound draw_round(const std::string& transports, std::uint64_t seed) {
  std::mt19937_64 random(seed * 7919 + transports.size() + static_cast<unsigned char>(transports[0]));
  FaultRound round;
  round.seed = seed;
  round.transports = transports;
  round.world = 2 + static_cast<int>(random() % 4);
  round.victim = static_cast<int>(random() % static_cast<std::uint64_t>(round.world));
  round.fault = fault_of(seed, transports);
  round.split = static_cast<Split>(random() % 3);
  round.step = random() % kMostSteps;
  round.delay = std::chrono::microseconds(random() % 4 == 0 ? 0 : random() % kLongestDelay);
  round.continues = random() % 2 == 0;
  round.at_once = random() % 2 == 0;
  const bool of_the_whole = round.fault == Fault::cut || round.fault == Fault::kill_at_start;
  if (of_the_whole || (round.split == Split::halves && round.part_size() < 2)) round.split = Split::none;
  return round;
}

}  // namespace lockstep::testing
