// Random collectives between real processes, one after the other and several side by side: all types and
// operators that the reference knows, all sizes, roots and forms, private and registered memory mixed across
// the ranks. Every result is compared with the reference bit for bit.
//
// `random_operations_test --operations 1000000` does a million; the suite does two thousand.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "lib/reduce/reduce.hpp"
#include "lockstep/memory.hpp"
#include "tests/engine/count_option.hpp"
#include "tests/engine/process_group.hpp"
#include "tests/engine/public_call.hpp"

namespace lockstep::internal {
namespace {

/// Operations that run side by side at most.
constexpr std::size_t kSideBySide = 4;
/// Largest message: above the sizes at which the library changes its ways for messages of this kind.
constexpr std::size_t kLargestBytes = 192 << 10;
/// Memory of one operation: input and output of the largest, for up to four ranks, canaries included.
constexpr std::size_t kBytesOfOne = 4 << 20;

/// Drawn alike by all ranks.
CollectiveCase draw(std::mt19937_64& random, int world) {
  constexpr DataType kTypes[] = {DataType::f16, DataType::bf16, DataType::f32, DataType::f64, DataType::i8,
                                 DataType::u8,  DataType::i32,  DataType::u32, DataType::i64, DataType::u64};
  constexpr ReduceOp kOps[] = {ReduceOp::sum,        ReduceOp::avg,  ReduceOp::min, ReduceOp::max,
                               ReduceOp::prod,       ReduceOp::band, ReduceOp::bor, ReduceOp::bxor,
                               ReduceOp::premul_sum, ReduceOp::user};
  CollectiveCase c;
  c.world = world;
  c.collective = static_cast<Collective>(random() % kCollectiveCount);
  c.type = kTypes[random() % std::size(kTypes)];
  do {
    c.op = kOps[random() % std::size(kOps)];
  } while (c.op != ReduceOp::user && !check_reduction(c.type, c.op).ok());
  c.root = static_cast<int>(random() % static_cast<std::uint64_t>(world));
  // Every order of magnitude is equally likely, and so most are small.
  const std::size_t most = kLargestBytes / size_of(c.type) / static_cast<std::size_t>(world);
  c.count = random() % ((most >> (random() % 17)) + 1);
  c.seed = random();
  return c;
}

class Rank {
 public:
  explicit Rank(Communicator communicator)
      : communicator_(std::move(communicator)),
        own_(static_cast<std::uint64_t>(communicator_.rank()) + 1),
        heap_(kSideBySide * kBytesOfOne),
        registered_(static_cast<std::byte*>(lockstep::allocate(heap_.size()))) {}
  ~Rank() { lockstep::free(registered_); }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  void run(std::uint64_t operations) {
    while (done_ < operations) run_some();
    communicator_.finalize();
  }

 private:
  struct InFlight {
    CollectiveCase what;
    CallBuffers buffers;
    Work work;
  };

  /// One to kSideBySide operations; each rank waits for them in an order of its own.
  void run_some() {
    std::vector<InFlight> calls;
    calls.reserve(kSideBySide);
    const std::size_t together = shared_() % 4 == 0 ? 1 + shared_() % kSideBySide : 1;
    for (std::size_t i = 0; i < together; ++i) {
      const CollectiveCase what = draw(shared_, communicator_.size());
      const std::span arena = own_() % 2 == 0 ? std::span(heap_) : std::span(registered_, heap_.size());
      const auto memory = arena.subspan(i * kBytesOfOne, kBytesOfOne);
      calls.push_back({what, CallBuffers(what, communicator_.rank(), own_() % 2 == 0, memory), {}});
      calls.back().work = start_public(communicator_, calls.back().what, calls.back().buffers);
    }
    // A user's operator points to its case, so the calls stay where they are.
    std::vector<std::size_t> order(calls.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), own_);
    for (const std::size_t i : order) {
      InFlight& call = calls[i];
      call.work.wait();
      const std::string wrong = call.buffers.check_result();
      if (!wrong.empty()) {
        throw std::runtime_error("operation " + std::to_string(done_) + ", " + call.what.describe() + ": " +
                                 wrong);
      }
      ++done_;
    }
  }

  Communicator communicator_;
  std::mt19937_64 shared_{2026}, own_;
  std::vector<std::byte> heap_;
  std::byte* registered_;
  std::uint64_t done_ = 0;
};

class RandomOperations : public ::testing::TestWithParam<std::tuple<const char*, int>> {};
INSTANTIATE_TEST_SUITE_P(Worlds, RandomOperations,
                         ::testing::Combine(::testing::Values("shm", "tcp"), ::testing::Values(2, 3)),
                         [](const auto& world) {
                           return std::string(std::get<0>(world.param)) + "_" +
                                  std::to_string(std::get<1>(world.param));
                         });

TEST_P(RandomOperations, AreRight) {
  const auto [transport, world] = GetParam();
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
