#include "tests/engine/fault_rank.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <thread>

#include "tests/support/bounds.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/host_of_rank.hpp"
#include "tests/support/sanitized.hpp"

namespace lockstep::testing {
namespace {

using internal::RandomSteps;
using internal::testing::wait_until;

/// What no call here reaches: one that comes to it would else hang.
constexpr std::chrono::seconds kFarDeadline(60);
/// After a fault, or after the deadline that it makes pass.
constexpr std::chrono::seconds kHeardWithin(1);
/// Steps of ranks that no fault concerns.
constexpr int kUndisturbedSteps = 8;
/// What a process keeps that has used the library: two threads beside its own, an epoll, an eventfd, and a
/// socket of theirs, and a number in reserve.
constexpr int kThreads = kSanitized ? 4 : 3, kKept = 7;
/// For a start that one rank never comes to.
constexpr std::chrono::seconds kShortStart(3);

/// Threads ("task") or descriptors ("fd") of this process.
int count_of(const std::string& what) {
  const std::filesystem::directory_iterator all("/proc/self/" + what);
  return static_cast<int>(std::distance(begin(all), end(all)));
}

int socket_option(int fd, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  getsockopt(fd, SOL_SOCKET, name, &value, &size);
  return value;
}

/// As if the network had cut all connections of this process.
void cut_connections() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    const bool listens = socket_option(fd, SO_ACCEPTCONN) == 1;
    const int family = socket_option(fd, SO_DOMAIN);
    if ((family == AF_INET || family == AF_INET6) && !listens) shutdown(fd, SHUT_RDWR);
  }
}

/// All connections that any two ranks may need, where they are made when they are needed: one that breaks
/// while it is made is missed by the rank alone that calls.
void connect_all(Communicator& group) {
  const std::vector<std::size_t> counts(static_cast<std::size_t>(group.size()), 1);
  std::vector<int> in(counts.size()), out(counts.size());
  CallOptions options;
  for (options.priority = 0; options.priority < 2; ++options.priority)
    group.all_to_all_v(in.data(), counts, out.data(), counts, DataType::i32, options);
  Batch batch = group.batch();
  for (int peer = 0; peer < group.size(); ++peer) {
    batch.send(&in[0], 1, DataType::i32, peer);
    batch.recv(&out[static_cast<std::size_t>(peer)], 1, DataType::i32, peer);
  }
  batch.submit().wait();
  group.barrier();
}

void meet(std::atomic<int>& arrived, int ranks) {
  arrived.fetch_add(1);
  wait_until([&] { return arrived.load() == ranks; });
}

}  // namespace

void FaultBoard::await_end(const FaultRound& round) const {
  wait_until([&] { return over.load() && heard.load() == round.part_size() - 1; });
}

void FaultBoard::happens() { happened = std::chrono::steady_clock::now().time_since_epoch().count(); }

FaultRank::FaultRank(const FaultRound& round, FaultBoard& board, int rank)
    : round_(round),
      board_(board),
      rank_(rank),
      own_(round.seed * 31 + static_cast<std::uint64_t>(rank)),
      steps_(round.seed * 2 + (round.is_in_part(rank) ? 1 : 0), static_cast<std::uint64_t>(rank)) {
  options_.timeout = kFarDeadline;
}

void FaultRank::run(const MeetingPlace& first, const MeetingPlace& second) {
  setenv("LOCKSTEP_TIMEOUT", (std::to_string(kFarDeadline.count()) + "s").c_str(), 1);
  if (round_.transports == "hosts") live_on_host(rank_ % 2);
  const int before = count_of("fd");
  run_first(first);
  run_survivors(second);
  if (round_.transports == "ucx") return;  // UCX keeps what a message needs that a rank died in.
  EXPECT_TRUE(eventually([&] { return count_of("task") <= kThreads && count_of("fd") <= before + kKept; }))
      << "rank " << rank_ << ": " << count_of("task") << " threads, and " << count_of("fd")
      << " descriptors where there were " << before;
}

void FaultRank::run_first(const MeetingPlace& place) {
  const bool at_start = round_.fault == Fault::kill_at_start;
  std::optional<Communicator> whole;
  began_ = Clock::now();
  try {
    whole = place.join(rank_, round_.world, round_.transports == "hosts" ? "auto" : round_.transports,
                       at_start ? kShortStart : std::chrono::seconds(30));
  } catch (const Error& error) {
    if (!at_start) throw;
    const std::string wrong = round_.judge(error, rank_, round_.victim);
    if (!wrong.empty()) ADD_FAILURE() << "rank " << rank_ << ": " << wrong;
    board_.heard.fetch_add(1);  // Others may have their group already.
    return;
  }
  // What may come from others is waited for when one has left, or is lost and only its links say so.
  if (round_.fault == Fault::cut || round_.fault == Fault::leave || round_.transports == "hosts")
    steps_.name_sources();
  if (round_.fault == Fault::cut) connect_all(*whole);
  if (round_.split == Split::none) return run_part(std::move(*whole));
  const int color = round_.is_in_part(rank_) ? 0 : 1;
  Communicator part = *whole->split(color, round_.split == Split::reversed ? -rank_ : rank_);
  meet(board_.split, round_.world);  // A loss ends a split that some have still to come out of.
  if (color == 0) {
    run_part(std::move(part));
  } else {
    run_other_half(std::move(part));
  }
  run_whole(*whole);
}

void FaultRank::run_part(Communicator group) {
  std::optional<Communicator> part = std::move(group);
  const int rank = part->rank(), victim = round_.in_part(round_.victim);
  step_until_error(part);
  if (round_.fault == Fault::none) {
    part->finalize();
  } else if (part) {
    expect_ended(*part, rank, victim);
  }
  steps_.mark_memory();
  if (own_() % 2 == 0) part.reset();
  if (is_victim()) {
    board_.over = true;
  } else {
    board_.heard.fetch_add(1);
  }
  board_.await_end(round_);
  options_.timeout = kFarDeadline;
  EXPECT_TRUE(steps_.memory_is_as_marked()) << "rank " << rank_ << ": memory of an ended call was written";
}

/// A message's error need not be the group's end: the next collective's is.
void FaultRank::step_until_error(std::optional<Communicator>& part) {
  const int rank = part->rank(), victim = round_.in_part(round_.victim);
  for (std::uint64_t step = 0; part && part->state() == ErrorCode::ok; ++step) {
    if (round_.fault == Fault::none && step == round_.step + kUndisturbedSteps) return;
    try {
      do_step(part, step);
    } catch (const Error& error) {
      hear(error, rank, victim);
    }
  }
}

void FaultRank::do_step(std::optional<Communicator>& part, std::uint64_t step) {
  board_.steps[rank_] = step + 1;
  if (step == round_.step && round_.has_deadline()) {
    meet(board_.at_deadline, round_.part_size());
    options_.timeout = kGivesUpAfter;
  }
  began_ = Clock::now();
  if (step == round_.step && is_victim()) return commit(part);
  const bool collective =
      round_.fault == Fault::leave || round_.fault == Fault::differ || round_.fault == Fault::refuse;
  if (step == round_.step && collective)
    return steps_.run_collective(*part, options_, RandomSteps::Twist::none);
  steps_.run(*part, options_);
}

/// The step in which this rank does what is wrong, unless it is done to it.
void FaultRank::commit(std::optional<Communicator>& part) {
  std::jthread other;
  switch (round_.fault) {
    case Fault::exit:
      board_.happens();
      _exit(0);
    case Fault::leave:
      board_.happens();
      steps_.leave_with_collective(std::move(*part), options_);
      return part.reset();
    case Fault::abort:
      if (round_.at_once) {
        board_.happens();
        part->abort("enough");
      } else {
        other = std::jthread([&] {
          internal::sleep_for(round_.delay);
          board_.happens();
          part->abort("enough");
        });
      }
      break;
    case Fault::differ:
      board_.happens();
      return steps_.run_collective(*part, options_, RandomSteps::Twist::differs);
    case Fault::refuse:
      board_.happens();
      return steps_.run_collective(*part, options_, RandomSteps::Twist::refused);
    case Fault::never_call:
      board_.happens();
      wait_until([&] { return board_.heard.load() == round_.part_size() - 1; });
      break;
    case Fault::cut:
      board_.happens();
      cut_connections();
      break;
    default:
      break;
  }
  steps_.run(*part, options_);
}

void FaultRank::hear(const Error& error, int rank, int victim) {
  const std::string wrong = round_.judge(error, rank, victim);
  if (!wrong.empty()) ADD_FAILURE() << "rank " << rank_ << ": " << wrong;
  const Clock::time_point happened{Clock::duration(board_.happened.load())};
  if (round_.has_deadline()) {
    EXPECT_LT(Clock::now() - began_, allowed(kHeardWithin) + kGivesUpAfter) << "rank " << rank_;
  } else {
    EXPECT_NE(board_.happened.load(), 0) << "rank " << rank_ << ": nothing had happened";
    EXPECT_LT(Clock::now() - std::max(happened, began_), allowed(kHeardWithin)) << "rank " << rank_;
  }
}

void FaultRank::expect_ended(Communicator& group, int rank, int victim) {
  began_ = Clock::now();
  try {
    group.barrier(options_);
    ADD_FAILURE() << "rank " << rank_ << ": a barrier without all ranks";
  } catch (const Error& error) {
    hear(error, rank, victim);
  }
  EXPECT_NE(group.state(), ErrorCode::ok) << "rank " << rank_;
}

void FaultRank::run_undisturbed(Communicator& group, RandomSteps& steps) {
  for (int i = 0; group.size() > 1 && i < kUndisturbedSteps; ++i) steps.run(group, options_);
}

void FaultRank::run_other_half(Communicator part) {
  run_undisturbed(part, steps_);
  board_.await_end(round_);
  run_undisturbed(part, steps_);
  part.finalize();
}

/// The group from which the one with the fault was split.
void FaultRank::run_whole(Communicator& whole) {
  if (round_.ends_process()) return expect_ended(whole, rank_, round_.victim);
  RandomSteps steps(round_.seed + 1, static_cast<std::uint64_t>(rank_));
  run_undisturbed(whole, steps);
  whole.finalize();
}

void FaultRank::run_survivors(const MeetingPlace& place) {
  const bool one_less = round_.ends_process();
  const int rank = one_less && rank_ > round_.victim ? rank_ - 1 : rank_;
  const int world = one_less ? round_.world - 1 : round_.world;
  Communicator group = place.join(rank, world, round_.transports == "hosts" ? "auto" : round_.transports);
  RandomSteps steps(round_.seed + 2, static_cast<std::uint64_t>(rank_));
  run_undisturbed(group, steps);
  group.finalize();
}

}  // namespace lockstep::testing
