// Random collectives between real processes, one after the other and several side by side: all types and
// operators that the reference knows, all sizes, roots and forms, private and registered memory mixed across
// the ranks, and so are calls that block and calls that do not. Some are repeated in other buffers, which is
// where a blocking call takes its short path. Every result is compared with the reference bit for bit.
//
// `random_operations_test --operations 1000000` does a million; the suite does two thousand.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>

#include "lockstep/memory.hpp"
#include "tests/engine/draw_case.hpp"
#include "tests/engine/process_group.hpp"
#include "tests/engine/public_call.hpp"
#include "tests/support/count_option.hpp"
#include "tests/support/scoped_variable.hpp"
#include "tests/support/temporary_directory.hpp"

namespace lockstep::internal {
namespace {

/// Operations that run side by side at most.
constexpr std::size_t kSideBySide = 4;
/// How often the same operation is called at most, one after the other.
constexpr std::size_t kMostTimes = 4;
/// Largest message but for the large ones: above the sizes at which the library changes its algorithms.
constexpr std::size_t kUsualBytes = 192 << 10;
/// Memory of one operation of those: input and output of the largest, for up to four ranks, canaries
/// included.
constexpr std::size_t kBytesOfOne = 4 << 20;
/// Before one call in so many a rank is late, for the others to wait long or sleep.
constexpr std::size_t kLateOneIn = 256;
constexpr std::chrono::microseconds kLate(1000);
/// One draw in so many is large: programs of several blocks, reductions in several, segments, stores past the
/// caches.
constexpr std::size_t kLargeOneIn = 256;
constexpr std::size_t kLeastLargeBytes = 1 << 20, kMostLargeBytes = 8 << 20;
constexpr std::size_t kArenaBytes = 2 * kMostLargeBytes + (64 << 10);
static_assert(kSideBySide * kBytesOfOne <= kArenaBytes);

/// Drawn alike by all ranks.
CollectiveCase draw(std::mt19937_64& random, int world, bool large) {
  CollectiveCase c = draw_case(random, world);
  c.count = large ? (kLeastLargeBytes + random() % (kMostLargeBytes - kLeastLargeBytes)) / bytes_of_count(c)
                  : draw_count(random, c, kUsualBytes);
  c.seed = random();
  return c;
}

class Rank {
 public:
  explicit Rank(Communicator communicator)
      : communicator_(std::move(communicator)),
        own_(static_cast<std::uint64_t>(communicator_.rank()) + 1),
        heap_(kArenaBytes),
        registered_(static_cast<std::byte*>(lockstep::allocate(kArenaBytes))) {}
  ~Rank() { lockstep::free(registered_); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void run(std::uint64_t operations) {
    while (done_ < operations) {
      if (shared_() % 4 == 0) {
        run_side_by_side();
      } else {
        run_again_and_again();
      }
    }
    communicator_.finalize();
  }

 private:
  struct InFlight {
    CollectiveCase what;
    CallBuffers buffers;
    Work work;
  };

  /// Whatever the peers do: when a rank comes, how it waits, and where its buffers lie, is its own affair.
  bool blocks() {
    if (own_() % kLateOneIn == 0) sleep_for(kLate);
    return own_() % 2 == 0;
  }
  CallBuffers buffers_for(const CollectiveCase& what, std::size_t first, std::size_t bytes) {
    const std::span arena = own_() % 2 == 0 ? std::span(heap_) : std::span(registered_, kArenaBytes);
    return {what, communicator_.rank(), own_() % 2 == 0, arena.subspan(first, bytes)};
  }

  /// One operation some times, each time with other data elsewhere.
  void run_again_and_again() {
    CollectiveCase what = draw(shared_, communicator_.size(), shared_() % kLargeOneIn == 0);
    for (std::size_t times = 1 + shared_() % kMostTimes; times > 0; --times) {
      what.seed = shared_();
      const CallBuffers buffers = buffers_for(what, 0, kArenaBytes);
      if (blocks()) {
        run_public(communicator_, what, buffers);
      } else {
        start_public(communicator_, what, buffers).wait();
      }
      check(what, buffers);
    }
  }

  /// Up to kSideBySide operations; each rank waits for some at once, and for the others in an order of its
  /// own.
  void run_side_by_side() {
    std::vector<InFlight> calls;
    calls.reserve(kSideBySide);  // A user's operator points to its case, so the calls stay where they are.
    const std::size_t together = 1 + shared_() % kSideBySide;
    for (std::size_t i = 0; i < together; ++i) {
      const CollectiveCase what = draw(shared_, communicator_.size(), false);
      calls.push_back({what, buffers_for(what, i * kBytesOfOne, kBytesOfOne), {}});
      InFlight& call = calls.back();
      if (blocks()) {
        run_public(communicator_, call.what, call.buffers);
      } else {
        call.work = start_public(communicator_, call.what, call.buffers);
      }
    }
    std::vector<std::size_t> order(calls.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), own_);
    for (const std::size_t i : order) {
      calls[i].work.wait();
      check(calls[i].what, calls[i].buffers);
    }
  }

  void check(const CollectiveCase& what, const CallBuffers& buffers) {
    const std::string wrong = buffers.check_result();
    if (!wrong.empty())
      throw std::runtime_error("operation " + std::to_string(done_) + ", " + what.describe() + ": " + wrong);
    ++done_;
  }

  Communicator communicator_;
  std::mt19937_64 shared_{2026}, own_;
  std::vector<std::byte> heap_;
  std::byte* registered_;
  std::uint64_t done_ = 0;
};

/// A model that writes large results past the caches, however large those are here.
class StreamingModel {
  const TemporaryDirectory directory_;
  const testing::ScopedVariable chosen_{
      "LOCKSTEP_TUNING",
      directory_.write("model.json", R"({"schema": "lockstep-tuning", "version": 1, "non_temporal_bytes": )" +
                                         std::to_string(2 * kLeastLargeBytes) + "}")};
};

class RandomOperations : public ::testing::TestWithParam<std::tuple<const char*, int>> {};
INSTANTIATE_TEST_SUITE_P(Worlds, RandomOperations,
                         ::testing::Combine(::testing::Values("shm", "tcp"), ::testing::Values(2, 3, 4)),
                         [](const auto& world) {
                           return std::string(std::get<0>(world.param)) + "_" +
                                  std::to_string(std::get<1>(world.param));
                         });

TEST_P(RandomOperations, AreRight) {
  const auto [transport, world] = GetParam();
  const StreamingModel model;
  lockstep::testing::MeetingPlace place;
  testing::run_forked(world, [&, transport = transport, world = world](int rank) {
    alarm(0);  // The number of operations bounds the time.
    try {
      Rank(place.join(rank, world, transport)).run(lockstep::testing::count_option(2'000));
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << rank << ": " << error.what();
    }
  });
}

}  // namespace
}  // namespace lockstep::internal
