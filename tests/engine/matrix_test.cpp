// Every collective and algorithm between real processes, against the reference: types, odd counts, in place
// and not, private and registered memory and both mixed across the ranks, one call after the other and many
// side by side, by calls that block, calls that do not, and calls that only repeat. Built once for each
// transport, and for several hosts (transport auto).
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tests/engine/algorithm_cases.hpp"
#include "tests/engine/can_pull.hpp"
#include "tests/engine/public_call.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/host_of_rank.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/temporary_directory.hpp"
#include "tests/support/test_run.hpp"
#include "transports/verbs/verbs_transport.hpp"

namespace lockstep::internal {
namespace {

/// A transport, or hosts.
const std::string_view kRun = lockstep::testing::test_run("shm");
/// By rank: which host it is on.
using Layout = std::vector<int>;
/// Hosts are simulated: their ranks meet on one machine, and share memory with those of their host alone.
const bool kSeveralHosts = kRun == "hosts";
constexpr std::size_t kArenaBytes = std::size_t{4} << 20;

Communicator join(int rank, int world, const TemporaryDirectory& place) {
  InitOptions options;
  options.rank = rank;
  options.world_size = world;
  options.rendezvous = "file://" + place.path() + "/store";
  options.job_id = "matrix";
  options.secret = "matrix";
  options.transports = kSeveralHosts ? "auto" : kRun;
  return Communicator::create(options);
}

enum class MemoryKind { heap, registered, mixed };

/// What one rank does. A wrong result ends it: the other ranks then learn of its end.
class Rank {
 public:
  Rank(int rank, const Layout& layout, const TemporaryDirectory& place)
      : communicator_(join(rank, static_cast<int>(layout.size()), place)),
        hosts_(has_shared_hosts(layout) ? layout : Layout()),
        heap_(kArenaBytes),
        registered_(static_cast<std::byte*>(lockstep::allocate(kArenaBytes))) {}
  ~Rank() { lockstep::free(registered_); }

  void run_rows() {
    for (const Algorithm& row : algorithms()) {
      const bool registered = row.medium == Medium::domain_registered;
      const bool has_domain = kRun == "shm" && communicator_.size() > 1;
      if (row.medium != Medium::links && !has_domain) continue;
      if (row.medium == Medium::domain_pulled && !lockstep::testing::can_pull(communicator_)) continue;
      run_all_counts(row.collective, &row, registered ? MemoryKind::registered : MemoryKind::heap);
      if (row.medium == Medium::links) run_all_counts(row.collective, &row, MemoryKind::registered);
    }
  }

  void run_library_choices() {
    for (int c = 0; c < kCollectiveCount; ++c) {
      for (const MemoryKind kind : {MemoryKind::heap, MemoryKind::registered, MemoryKind::mixed}) {
        run_all_counts(static_cast<Collective>(c), nullptr, kind);
      }
    }
  }

  void run_side_by_side() {
    for (std::uint64_t round = 0; round < 30; ++round) run_batch(round);
  }

  void finish() { communicator_.finalize(); }

 private:
  struct InFlight {
    CollectiveCase what;
    CallBuffers buffers;
    Work work;
  };

  void run_all_counts(Collective collective, const Algorithm* row, MemoryKind kind) {
    constexpr DataType kTypes[] = {DataType::f32, DataType::bf16, DataType::i64};
    constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::max, ReduceOp::prod,
                                 ReduceOp::premul_sum};
    const auto n = static_cast<std::size_t>(communicator_.size());
    for (const DataType type : kTypes) {
      for (const std::size_t count :
           {std::size_t{0}, std::size_t{1}, n + 1, std::size_t{1001}, std::size_t{20'011}}) {
        ++turn_;
        const ReduceOp op = kOps[(turn_ + turn_ / 5) % 5];  // Each in turn meets each count.
        // premul_sum, but of all_reduce, scales into private memory: nothing for registered programs.
        const bool may_scale = row == nullptr || row->medium != Medium::domain_registered ||
                               collective == Collective::all_reduce;
        const ReduceOp chosen = op == ReduceOp::premul_sum && !may_scale ? ReduceOp::sum : op;
        run({collective, type, chosen, communicator_.size(), static_cast<int>(turn_ % n), count, turn_}, row,
            kind);
      }
    }
  }

  void run(const CollectiveCase& what, const Algorithm* row, MemoryKind kind) {
    Shape shape = shape_of(what, communicator_.rank());
    shape.hosts = hosts_;
    if (row != nullptr && !row->supports(shape)) return;
    CallOptions options;
    if (row != nullptr) options.algorithm = row->name;
    const CallBuffers buffers(what, communicator_.rank(), turn_ % 2 == 0, memory(kind, turn_));
    if (static_cast<std::uint64_t>(communicator_.rank()) % 2 == turn_ / 2 % 2) {
      run_public(communicator_, what, buffers, options);
    } else {
      start_public(communicator_, what, buffers, options).wait();
    }
    check(what, buffers, row == nullptr ? "library's choice" : text_of(*row));
    // The first with what is known of the call, the second with what is left of its run.
    for (const std::uint64_t times : {1, 2})
      if (row == nullptr) run_once_more(what, kind, times);
  }

  void run_once_more(CollectiveCase what, MemoryKind kind, std::uint64_t times) {
    what.seed += 4 * times;  // Other numbers, aligned as they were.
    const CallBuffers buffers(what, communicator_.rank(), (turn_ + times) % 2 == 0,
                              memory(kind, turn_ + times));
    run_public(communicator_, what, buffers);
    check(what, buffers, "repeated");
  }

  /// The same calls on all ranks, some of them urgent, started in one order, awaited in an order of each
  /// rank's own.
  void run_batch(std::uint64_t round) {
    constexpr std::size_t kSideBySide = 8;
    std::mt19937_64 shared(round), own(round * 100 + static_cast<std::uint64_t>(communicator_.rank()));
    std::vector<InFlight> calls;
    calls.reserve(kSideBySide);
    for (std::size_t i = 0; i < kSideBySide; ++i) {
      const CollectiveCase what{static_cast<Collective>(shared() % kCollectiveCount),
                                shared() % 2 == 0 ? DataType::f32 : DataType::i64,
                                ReduceOp::sum,
                                communicator_.size(),
                                static_cast<int>(shared() % static_cast<std::uint64_t>(communicator_.size())),
                                shared() % 3'000,
                                round};
      const auto arena = memory(own() % 2 == 0 ? MemoryKind::heap : MemoryKind::registered, round);
      const auto part = arena.subspan(i * (kArenaBytes / kSideBySide), kArenaBytes / kSideBySide);
      calls.push_back({what, CallBuffers(what, communicator_.rank(), own() % 2 == 0, part), {}});
      CallOptions options;
      options.priority = shared() % 3 == 0 ? 1 : 0;
      calls.back().work = start_public(communicator_, calls.back().what, calls.back().buffers, options);
    }
    std::shuffle(calls.begin(), calls.end(), own);
    for (InFlight& call : calls) {
      call.work.wait();
      check(call.what, call.buffers, "side by side");
    }
  }

  void check(const CollectiveCase& what, const CallBuffers& buffers, const std::string& how) const {
    const std::string wrong = buffers.check_result();
    if (wrong.empty()) return;
    throw std::runtime_error(what.describe() + ", " + how + ", turn " + std::to_string(turn_) + ": " + wrong);
  }

  std::span<std::byte> memory(MemoryKind kind, std::uint64_t turn) {
    const bool mine_registered = (static_cast<std::uint64_t>(communicator_.rank()) + turn) % 2 == 0;
    const bool registered = kind == MemoryKind::registered || (kind == MemoryKind::mixed && mine_registered);
    return registered ? std::span(registered_, kArenaBytes) : std::span(heap_);
  }

  static bool has_shared_hosts(const Layout& layout) {
    const std::set<int> hosts(layout.begin(), layout.end());
    return hosts.size() > 1 && hosts.size() < layout.size();
  }

  Communicator communicator_;
  const Layout hosts_;
  std::vector<std::byte> heap_;
  std::byte* registered_;
  std::uint64_t turn_ = 0;
};

class Matrix : public ::testing::TestWithParam<Layout> {
 protected:
  void SetUp() override {
    if (kRun == "verbs" && !open_verbs(0).ok()) GTEST_SKIP() << "no RDMA device here";
  }
  static void on_ranks(void (Rank::*part)()) {
    const TemporaryDirectory place;
    const Layout& layout = GetParam();
    testing::run_forked(static_cast<int>(layout.size()), [&](int rank) {
      if (kSeveralHosts) lockstep::testing::live_on_host(layout[static_cast<std::size_t>(rank)]);
      try {
        Rank self(rank, layout, place);
        (self.*part)();
        self.finish();
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << " of " << layout.size() << ": " << error.what();
      }
    });
  }
};

TEST_P(Matrix, EveryAlgorithm) { on_ranks(&Rank::run_rows); }
TEST_P(Matrix, LibrarysChoice) { on_ranks(&Rank::run_library_choices); }
TEST_P(Matrix, SideBySide) { on_ranks(&Rank::run_side_by_side); }

/// A sanitizer leaves out the last, which is like others but longer: half of its time over links.
std::vector<Layout> layouts() {
  std::vector<Layout> result;
  if (kSeveralHosts)
    result = {{0, 0, 1, 2, 2, 2}, {0, 0, 1, 1}, {0, 0, 0, 0}, {0, 1, 2}, {0, 1, 0, 1}, {0, 0, 1, 1, 2, 2}};
  else
    for (const std::size_t world : {1, 2, 3, 4, 5, 8}) result.emplace_back(world, 0);
  if (lockstep::testing::kSanitized) result.pop_back();
  return result;
}

std::string name_of_layout(const ::testing::TestParamInfo<Layout>& test) {
  if (!kSeveralHosts) return std::to_string(test.param.size());
  std::string name = "hosts";
  for (const int host : test.param) name += "_" + std::to_string(host);
  return name;
}

INSTANTIATE_TEST_SUITE_P(Worlds, Matrix, ::testing::ValuesIn(layouts()), name_of_layout);

}  // namespace
}  // namespace lockstep::internal
