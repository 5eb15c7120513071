// The kernel that carries messages, between ranks that are threads of one process: any sizes, rings that run
// full, and the ends of waits.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "collectives/device/message_plan.hpp"
#include "lib/device/host/host_backend.hpp"
#include "lib/device/sync/sync_kernels.hpp"
#include "tests/support/must.hpp"

namespace lockstep::internal {
namespace {

using testing::must;

constexpr std::size_t kAreaBytes = 16 << 10;

/// What a rank shares with the others, and what it has for itself.
struct Rank {
  alignas(128) std::byte area[kAreaBytes]{};
  sync::MessageCounters counters{};
  sync::MessageSizes sizes{};
  std::uint32_t abort = 0, report = 0;
};

class World {
 public:
  explicit World(int size) : ranks_(static_cast<std::size_t>(size)) {
    for (int rank = 0; rank < size; ++rank)
      streams_.push_back(must(backend_.create_stream(Backend::Priority::normal)));
  }
  ~World() {
    for (const DeviceStream stream : streams_) must(backend_.destroy_stream(stream));
  }
  int size() const { return static_cast<int>(ranks_.size()); }
  Rank& operator[](int rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  void enqueue(int rank, std::span<const DeviceMessage> messages, std::uint64_t limit = 0) {
    auto plan = must(plan_messages(messages, rank, size(), sync::message_slot_bytes(kAreaBytes, size())));
    Rank& own = (*this)[rank];
    plan.counters = &own.counters;
    plan.sizes = &own.sizes;
    plan.bounds = {&own.abort, &own.report, limit};
    for (int member = 0; member < size(); ++member) plan.areas[member] = (*this)[member].area;
    must(sync::start(backend_, plan, streams_[static_cast<std::size_t>(rank)]));
  }
  void synchronize(int rank) { must(backend_.synchronize(streams_[static_cast<std::size_t>(rank)])); }
  sync::Report::Why why(int rank) { return sync::Report::why(std::atomic_ref((*this)[rank].report).load()); }

 private:
  HostBackend backend_;
  std::vector<Rank> ranks_;
  std::vector<DeviceStream> streams_;
};

TEST(MessageKernel, CarriesAnySizesAtOnce) {
  constexpr int kRanks = 3, kRounds = 30, kEach = 3;
  World world(kRanks);
  std::mt19937 random(1);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::vector<std::byte>> sent, received;  // By sender, receiver and number.
    for (int i = 0; i < kRanks * kRanks * kEach; ++i) {
      const std::size_t most = round % 2 == 0 ? 300 : 20'000;
      sent.emplace_back(random() % most);
      for (std::byte& byte : sent.back()) byte = static_cast<std::byte>(random());
      received.emplace_back(sent.back().size());
    }
    const auto index = [](int from, int to, int number) {
      return static_cast<std::size_t>((from * kRanks + to) * kEach + number);
    };
    for (int rank = 0; rank < kRanks; ++rank) {
      std::vector<DeviceMessage> messages;
      for (int number = 0; number < kEach; ++number) {
        for (int peer = 0; peer < kRanks; ++peer) {
          if (peer == rank) continue;
          auto& out = sent[index(rank, peer, number)];
          auto& in = received[index(peer, rank, number)];
          messages.push_back({true, out.data(), out.size(), peer, nullptr});
          messages.push_back({false, in.data(), in.size(), peer, nullptr});
        }
      }
      world.enqueue(rank, messages);
    }
    for (int rank = 0; rank < kRanks; ++rank) world.synchronize(rank);
    for (int from = 0; from < kRanks; ++from) {
      for (int to = 0; to < kRanks; ++to) {
        for (int number = 0; from != to && number < kEach; ++number)
          ASSERT_EQ(sent[index(from, to, number)], received[index(from, to, number)]) << round;
      }
    }
  }
}

TEST(MessageKernel, EndsByItsDeadlineOrAnAbort) {
  World world(2);
  std::byte memory[64];
  const DeviceMessage one{false, memory, sizeof memory, 1, nullptr};
  world.enqueue(0, {&one, 1}, 1'000'000);
  world.synchronize(0);
  EXPECT_EQ(world.why(0), sync::Report::Why::late);
  EXPECT_EQ(sync::Report::awaited(world[0].report), 1);
  world.enqueue(0, {&one, 1});
  std::atomic_ref(world[0].abort).store(1);
  world.synchronize(0);
  EXPECT_EQ(world.why(0), sync::Report::Why::late);  // The first reason stays.

  World other(2);
  other.enqueue(0, {&one, 1});
  std::atomic_ref(other[0].abort).store(1);
  other.synchronize(0);
  EXPECT_EQ(other.why(0), sync::Report::Why::aborted);
}

TEST(MessageKernel, TellsOfSizesThatDiffer) {
  World world(2);
  std::vector<std::byte> memory(20'000);
  const DeviceMessage send{true, memory.data(), 10, 1, nullptr};
  const DeviceMessage receive{false, memory.data() + 100, 19'000, 0, nullptr};
  world.enqueue(0, {&send, 1});
  world.enqueue(1, {&receive, 1});
  world.synchronize(0);
  while (world.why(1) == sync::Report::Why::none) std::this_thread::yield();
  EXPECT_EQ(world.why(1), sync::Report::Why::sizes);
  EXPECT_EQ(world[1].sizes.sent, 10u);
  EXPECT_EQ(world[1].sizes.expected, 19'000u);
  std::atomic_ref(world[1].abort).store(1);  // Its other channels wait for what never comes.
  world.synchronize(1);
}

TEST(MessagePlan, FitsTheRanksItServes) {
  for (int world = 2; world <= sync::kMaxPacketRanks; ++world) {
    EXPECT_LE(2 * (world - 1) * sync::message_channels(world), sync::kMaxMessageBlocks);
    const std::uint64_t slot = sync::message_slot_bytes(32 << 10, world);
    EXPECT_GT(slot, sync::kMessageHead) << world;
    EXPECT_LE(sync::message_word_bytes(world) +
                  slot * sync::kMessageSlots * static_cast<unsigned>(world * sync::message_channels(world)),
              32u << 10);
  }
  EXPECT_EQ(sync::message_slot_bytes(32 << 20, sync::kMaxPacketRanks + 1), 0u);
}

}  // namespace
}  // namespace lockstep::internal
