// Every collective on devices between real processes, against the reference: types, operators, odd counts, in
// place and not, private and registered memory and both mixed across the ranks. Buffers lie at odd places
// among canaries; what is uploaded, called and downloaded is in one stream, and nothing is waited for in
// between.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iterator>

#include "lib/base/element_types.hpp"
#include "lib/base/threads.hpp"
#include "lib/reduce/reduce.hpp"
#include "tests/device/communicator/device_world.hpp"
#include "tests/engine/process_group.hpp"
#include "tests/support/host_of_rank.hpp"
#include "tests/support/sanitized.hpp"
#include "tests/support/test_run.hpp"

namespace lockstep::internal {
namespace {

using lockstep::testing::MeetingPlace;

const lockstep::testing::DeviceRun kRun(lockstep::testing::test_run("host_sync"));
/// Between hosts, from device to device.
const bool kStraight = kRun.mode == "straight";
const char* const kMode = kStraight ? "host_sync" : kRun.mode.c_str();
constexpr std::size_t kArenaBytes = std::size_t{8} << 20;
enum class Memory { private_memory, registered, mixed };

class Rank {
 public:
  Rank(int rank, int world, const std::string& store, bool one_host)
      : one_host_(one_host),
        host_(lockstep::testing::join_at(store, rank, world, kStraight ? "ucx" : "auto")),
        device_(lockstep::testing::device_of(rank % 3)),  // Some ranks share a device, some have their own.
        communicator_(host_, device_),
        stream_(device_),
        private_(kArenaBytes, device_),
        registered_(kArenaBytes, device_) {
    communicator_.register_buffer(registered_.device(), kArenaBytes);
    EXPECT_EQ(name_of(communicator_.mode()), kMode) << communicator_.describe();
    const bool straight = communicator_.describe().find("from device to device") != std::string::npos;
    EXPECT_EQ(straight, kStraight) << communicator_.describe();
    host_.barrier();  // An allocation may wait for kernels on its GPU, and these for this rank.
  }

  void run_everything() {
    for (int c = 0; c < kCollectiveCount; ++c) {
      for (const Memory memory : {Memory::private_memory, Memory::registered, Memory::mixed})
        run_counts(static_cast<Collective>(c), memory);
    }
  }

  void run_types_and_operators() {
    for (int t = 0; t < kDataTypeCount; ++t) {
      for (int o = 0; o <= static_cast<int>(ReduceOp::premul_sum); ++o) {
        const auto type = static_cast<DataType>(t);
        const auto op = static_cast<ReduceOp>(o);
        if (!check_reduction(type, op).ok()) continue;
        // Hosts multiply in another order, which shows in the sign of a complex zero.
        if (!one_host_ && is_complex(type) && op == ReduceOp::prod) continue;
        for (const Collective collective :
             {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}) {
          run(collective, type, op, 777, Memory::mixed);
        }
      }
    }
  }

  void finish() {
    communicator_.finalize();
    host_.finalize();
  }

 private:
  void run_counts(Collective collective, Memory memory) {
    const auto n = static_cast<std::size_t>(communicator_.size());
    constexpr DataType kTypes[] = {DataType::f32, DataType::bf16,       DataType::i64,
                                   DataType::u8,  DataType::complex128, DataType::f8e4m3};
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, n + 1, std::size_t{1001}, std::size_t{20'011}}) {
      const DataType type = kTypes[turn_ % std::size(kTypes)];
      const ReduceOp op = turn_ % 3 == 0 ? ReduceOp::avg : ReduceOp::sum;
      run(collective, type, op, count, memory);
    }
  }

  void run(Collective collective, DataType type, ReduceOp op, std::size_t count, Memory memory) {
    ++turn_;
    const CollectiveCase what{collective,
                              type,
                              op,
                              communicator_.size(),
                              static_cast<int>(turn_ % static_cast<std::uint64_t>(communicator_.size())),
                              count,
                              turn_};
    DeviceArena& arena = arena_of(memory);
    const std::size_t bytes = CallBuffers::bytes_needed(what);
    ASSERT_LE(bytes, arena.size());
    const CallBuffers buffers(what, communicator_.rank(), turn_ % 2 == 0, arena.host());
    arena.upload(bytes, stream_);
    start_on_device(communicator_, what, buffers, arena, stream_);
    arena.download(bytes, stream_);
    stream_.synchronize();
    if (communicator_.state() != ErrorCode::ok) throw std::runtime_error(communicator_.error_text());
    const std::string wrong = buffers.check_result();
    if (!wrong.empty()) throw std::runtime_error(what.describe() + ": " + wrong);
  }

  DeviceArena& arena_of(Memory memory) {
    const bool mine = (static_cast<std::uint64_t>(communicator_.rank()) + turn_) % 2 == 0;
    return memory == Memory::registered || (memory == Memory::mixed && mine) ? registered_ : private_;
  }

  const bool one_host_;
  Communicator host_;
  const int device_;
  DeviceCommunicator communicator_;
  TestStream stream_;
  DeviceArena private_, registered_;
  std::uint64_t turn_ = 0;
};

/// Of each rank its host.
using Layout = std::vector<int>;

bool is_one_host(const Layout& layout) { return layout == Layout(layout.size()); }

template <void (Rank::*part)()>
void run_rank(int rank, int world, const std::string& store, bool one_host) {
  try {
    Rank self(rank, world, store, one_host);
    (self.*part)();
    self.finish();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << rank << ": " << error.what();
  }
}

/// What a process does: one rank, or all as threads.
template <void (Rank::*part)()>
void run_process(int rank, int world, const std::string& store, bool one_host) {
  if (!kRun.in_threads) return run_rank<part>(rank, world, store, one_host);
  on_threads(static_cast<std::size_t>(world),
             [&](std::size_t thread) { run_rank<part>(static_cast<int>(thread), world, store, one_host); });
}

class DeviceMatrix : public ::testing::TestWithParam<Layout> {
 protected:
  template <void (Rank::*part)()>
  static void on_ranks() {
    const Layout& layout = GetParam();
    ::setenv("LOCKSTEP_DEVICE_BACKEND", "host", 0);
    ::setenv("LOCKSTEP_DEVICE_MODE", kMode, 1);
    ::setenv("LOCKSTEP_DEVICE_STAGING", "96K", 1);  // Large messages pass in many blocks.
    const MeetingPlace place;
    const auto world = static_cast<int>(layout.size());
    const int processes = kRun.in_threads ? 1 : world;
    if (is_one_host(layout) && lockstep::testing::crew_is_wanted()) {
      const auto task = [](int rank, int ranks, const std::string& store) {
        run_process<part>(rank, ranks, store, true);
      };
      return lockstep::testing::run_on_crew(processes, task, world, place.store());
    }
    testing::run_forked(processes, [&](int rank) {
      lockstep::testing::live_on_host(layout[static_cast<std::size_t>(rank)]);
      run_process<part>(rank, world, place.store(), is_one_host(layout));
    });
  }
};

TEST_P(DeviceMatrix, Everything) { on_ranks<&Rank::run_everything>(); }
TEST_P(DeviceMatrix, TypesAndOperators) { on_ranks<&Rank::run_types_and_operators>(); }

/// Straight is a way between hosts, and threads of a process are on one.
std::vector<Layout> layouts() {
  const std::vector<Layout> one_host{{0}, {0, 0}, {0, 0, 0}, {0, 0, 0, 0}};
  // One rank on each host; as many on every host, in order and mixed; uneven.
  const std::vector<Layout> hosts{{0, 1}, {0, 0, 1, 1}, {0, 1, 1, 0}, {0, 0, 1}};
  std::vector<Layout> all;
  if (!kStraight) all = one_host;
  if (!kRun.in_threads) all.insert(all.end(), hosts.begin(), hosts.end());
  // A sanitizer leaves out the longest, which is like others.
  if (kMode != std::string_view("host_sync") && !lockstep::testing::kSanitized) all.emplace_back(8);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Layouts, DeviceMatrix, ::testing::ValuesIn(layouts()));

}  // namespace
}  // namespace lockstep::internal
