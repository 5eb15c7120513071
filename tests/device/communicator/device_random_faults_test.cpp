// Faults at random moments of random operations on devices (random_device_rank.hpp): a rank is killed,
// stopped, aborts, leaves, calls something else or nothing. What had ended well until then is right; on all
// others every stream comes to its end, the error names that rank, and nobody writes to their memory
// afterwards, unless it says so.
//
// `TEST_RUN=device_sync device_random_faults_test --operations 1000` makes that many faults, and
// `--gtest_random_seed=2` others.
#include <gtest/gtest.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <ostream>
#include <random>
#include <regex>

#include "tests/device/communicator/device_world.hpp"
#include "tests/device/communicator/random_device_rank.hpp"
#include "tests/support/bounds.hpp"
#include "tests/support/count_option.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/host_of_rank.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/test_run.hpp"

namespace lockstep::internal {
namespace {

using lockstep::testing::allowed;
using lockstep::testing::eventually;
using lockstep::testing::MeetingPlace;
using testing::Shared;
using testing::wait_until;
using Clock = std::chrono::steady_clock;

const char* const kMode = lockstep::testing::test_run("stream_sync");
constexpr int kMostRanks = 4;
/// How long ranks wait for one that does not come: longer than the operations before take.
constexpr std::chrono::seconds kDeadline(lockstep::testing::kSanitized ? 5 : 1);
/// Operations of a round at most.
constexpr std::uint64_t kSoon = 8;
/// From the fault to the error on all others.
constexpr std::chrono::seconds kPatience(3);

enum class Fault : std::uint8_t { killed, stopped, aborts, leaves, differs, refused, misses };
constexpr std::array kFaults{Fault::killed,  Fault::stopped, Fault::aborts, Fault::leaves,
                             Fault::differs, Fault::refused, Fault::misses};

struct Life {
  Fault fault;
  int hosts, world, victim;
  std::uint64_t seed, operation;  ///< Before which it happens.
  /// Without one ranks may wait for ever: one that calls a barrier more may have all others wait, for its
  /// messages behind that, before they come to a call that differs.
  bool has_deadline() const {
    return fault == Fault::stopped || fault == Fault::misses || fault == Fault::differs;
  }
};

std::ostream& operator<<(std::ostream& out, const Life& life) {
  constexpr const char* kNames[] = {"killed", "stopped", "aborts", "leaves", "differs", "refused", "misses"};
  return out << "rank " << life.victim << " of " << life.world << ' '
             << kNames[static_cast<std::size_t>(life.fault)] << " before operation " << life.operation
             << ", on " << life.hosts << " hosts, seed " << life.seed;
}

Life draw_life(std::uint64_t seed, std::uint64_t turn) {
  std::mt19937_64 random(seed + turn);
  Life life{};
  life.fault = kFaults[turn % kFaults.size()];
  life.hosts = 1 + static_cast<int>(turn / kFaults.size() % 2);
  life.world = 2 + static_cast<int>(random() % (kMostRanks - 1));
  life.victim = static_cast<int>(random() % static_cast<std::uint64_t>(life.world));
  life.seed = random();
  life.operation = random() % 40;
  return life;
}

/// What all ranks see.
struct Board {
  std::atomic<std::int64_t> happened_at{0};
  std::atomic<int> survivors_done{0};
  std::atomic<bool> is_victim_done{false}, is_over{false};
};

/// The victim needs no more.
struct Left {};

class Play {
 public:
  Play(const Life& life, const MeetingPlace& place, Board& board, int rank)
      : life_(life), board_(board), is_victim_(rank == life.victim) {
    if (life.hosts > 1) lockstep::testing::live_on_host(life.hosts * rank / life.world);
    self_.emplace(rank, life.world, place, life.hosts > 1, life.seed);
    self_->before = [this] { before_operation(); };
  }

  void run() {
    try {
      while (true) {
        // From the begin of a round on, so that what a rank that stops leaves under way has one as well.
        if (life_.has_deadline() && self_->done() + kSoon >= life_.operation) self_->set_timeout(kDeadline);
        self_->run_round();
      }
    } catch (const Error& error) {
      if (!is_victim_) expect_reason(error);
    } catch (const Left&) {
      self_.reset();
    } catch (const std::exception& error) {
      ADD_FAILURE() << life_ << ": " << error.what();
    }
    if (self_) self_->drain();
    if (is_victim_) {
      board_.is_victim_done.store(true);
      return wait_until([&] { return board_.is_over.load(); });
    }
    const auto late = Clock::now().time_since_epoch() - Clock::duration(board_.happened_at.load());
    EXPECT_LT(late, allowed(kPatience)) << life_;
    EXPECT_THROW(self_->communicator().barrier(nullptr), Error) << life_;
    self_->mark_memory();
    board_.survivors_done.fetch_add(1);
    wait_until([&] { return board_.is_over.load(); });
    if (may_be_written()) return;
    EXPECT_EQ(self_->check_marks(), "") << life_;
  }

 private:
  /// On the host backend a kernel is a thread, which may get no core for long.
  bool may_be_written() {
    return self_->communicator().error_text().find("may still write") != std::string::npos;
  }
  void before_operation() {
    if (!is_victim_ || self_->done() != life_.operation) return;
    board_.happened_at = Clock::now().time_since_epoch().count();
    happen();
  }

  void happen() {
    DeviceCommunicator& ranks = self_->communicator();
    switch (life_.fault) {
      case Fault::killed:
        raise(SIGKILL);
        break;
      case Fault::stopped:
        raise(SIGSTOP);
        break;
      case Fault::aborts:
        return ranks.abort("enough");
      case Fault::leaves:
        throw Left();
      case Fault::differs:
        return ranks.barrier(self_->stream());  // Behind what a graph may still replay.
      case Fault::refused:
        return ranks.all_reduce(this, this, 4, DataType::u8, ReduceOp::bxor, nullptr);
      case Fault::misses:
        wait_until([&] { return ranks.state() != ErrorCode::ok; });
    }
  }

  void expect_reason(const Error& error) const {
    const std::string text = error.what();
    EXPECT_TRUE(is_due(error.code())) << life_ << ": " << static_cast<int>(error.code()) << ' ' << text;
    // In a batch of messages a rank may be waited for that itself waits.
    const std::string who = life_.has_deadline() ? "[0-9]+ \\(" : std::to_string(life_.victim);
    EXPECT_TRUE(std::regex_search(text, std::regex("rank " + who))) << life_ << ": " << text;
    if (!life_.has_deadline()) {
      EXPECT_EQ(error.culprit(), life_.victim) << life_ << ": " << text;
    }
  }
  bool is_due(ErrorCode code) const {
    switch (life_.fault) {
      case Fault::killed:
        return code == ErrorCode::peer_lost;
      case Fault::aborts:
        return code == ErrorCode::aborted;
      case Fault::leaves:  // With operations under way, or without.
        return code == ErrorCode::aborted || code == ErrorCode::peer_lost;
      case Fault::differs:
        return code == ErrorCode::mismatch || code == ErrorCode::timeout;
      case Fault::refused:
        return code == ErrorCode::refused;
      default:
        return code == ErrorCode::timeout;
    }
  }

  const Life life_;
  Board& board_;
  const bool is_victim_;
  std::optional<RandomDeviceRank> self_;
};

/// Ends when the survivors have seen the error, and whoever is late afterwards has had its time.
void live(const Life& life) {
  ::setenv("LOCKSTEP_DEVICE_STAGING", life.seed % 2 == 0 ? "96K" : "2M", 1);
  const MeetingPlace place;
  Shared<Board> board;
  const std::vector<pid_t> children =
      testing::start_forked(life.world, [&](int rank) { Play(life, place, *board, rank).run(); });
  const pid_t victim = children[static_cast<std::size_t>(life.victim)];
  const auto survivors_are_done = [&] { return board->survivors_done.load() == life.world - 1; };
  // On the host backend a kernel stops with its process: a victim in the midst of one that writes is awaited.
  if (life.fault == Fault::stopped && !eventually(survivors_are_done, allowed(kPatience))) {
    board->happened_at = Clock::now().time_since_epoch().count();
    kill(victim, SIGCONT);
  }
  wait_until(survivors_are_done);
  if (life.fault == Fault::stopped) {
    kill(victim, SIGCONT);
    wait_until([&] { return board->is_victim_done.load(); });
  }
  board->is_over.store(true);
  for (int rank = 0; rank < life.world; ++rank) {
    const int status = testing::wait_for(children[static_cast<std::size_t>(rank)]);
    const bool killed = life.fault == Fault::killed && rank == life.victim;
    EXPECT_TRUE(status == 0 || killed) << life << ": rank " << rank << " ended with status " << status;
  }
}

TEST(DeviceRandomFaults, AreNamedAndEndEverything) {
  lockstep::testing::use_host_backend(kMode);
  const std::uint64_t seed =
      2026 + static_cast<std::uint64_t>(::testing::GTEST_FLAG(random_seed)) * 1'000'000;
  const std::uint64_t faults = lockstep::testing::count_option(2 * kFaults.size());
  for (std::uint64_t turn = 0; turn < faults && !HasFailure(); ++turn) live(draw_life(seed, turn));
}

}  // namespace
}  // namespace lockstep::internal
