// Collectives captured in a graph: right in every replay, in turn with calls outside, and bounded as calls
// are.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>

#include "tests/device/communicator/device_world.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/device_backend.hpp"
#include "tests/support/must.hpp"
#include "tests/support/test_run.hpp"

namespace lockstep {
namespace {

using internal::DeviceArena;
using internal::DeviceGraph;
using internal::testing::must;
using internal::testing::Shared;
using internal::testing::start_forked;
using internal::testing::wait_for;
using internal::testing::wait_until;
using testing::backend;
using testing::DeviceRank;
using testing::MeetingPlace;
using testing::run_on_devices;

const char* const kMode = testing::test_run("stream_sync");

/// What `calls` enqueues to the rank's stream.
class Graph {
 public:
  Graph(DeviceRank& self, const std::function<void()>& calls) : stream_(self.stream) {
    must(backend().begin_capture(stream_));
    calls();
    graph_ = must(backend().end_capture(stream_));
  }
  ~Graph() { must(backend().destroy_graph(graph_)); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void replay() { must(backend().replay(graph_, stream_)); }

 private:
  const Stream stream_;
  DeviceGraph graph_ = nullptr;
};

/// Values that grow by the factor `world` in every all_reduce, without ever becoming 0 where that is odd.
class Growing {
 public:
  Growing(DeviceRank& self, std::size_t count)
      : self_(self), count_(count), arena_(count * 4, self.device()) {
    std::fill_n(values(), count_, 1u);
    arena_.upload(arena_.size(), self.stream);
  }
  void all_reduce(const DeviceCallOptions& options = {}) {
    self_.communicator.all_reduce(arena_.device(), arena_.device(), count_, DataType::u32, ReduceOp::sum,
                                  self_.stream, options);
  }
  /// After `times` of them.
  void check(int times) {
    arena_.download(arena_.size(), self_.stream);
    self_.synchronize();
    std::uint32_t expected = 1;
    for (int i = 0; i < times; ++i) expected *= static_cast<std::uint32_t>(self_.size());
    EXPECT_EQ(std::count(values(), values() + count_, expected), static_cast<std::ptrdiff_t>(count_));
  }

 private:
  std::uint32_t* values() { return reinterpret_cast<std::uint32_t*>(arena_.host().data()); }

  DeviceRank& self_;
  const std::size_t count_;
  DeviceArena arena_;
};

/// Small: in packets. Large: in phases, with the staging memory of these tests.
constexpr std::size_t kSmall = 50, kLarge = 20'000;

class DeviceGraphs : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("LOCKSTEP_DEVICE_STAGING", "96K", 1);
    if (std::string_view(kMode) == "stream_sync" && shared())
      GTEST_SKIP() << "processes that take turns on a GPU capture nothing in this mode";
  }
  static bool shared() {
    static const bool slices = testing::take_time_slices(3);
    return slices;
  }
};
/// What threads can capture processes may not.
class DeviceGraphsOfThreads : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("LOCKSTEP_DEVICE_STAGING", "96K", 1); }
};

void replay_often(DeviceRank& self, int replays) {
  Growing small(self, kSmall), large(self, kLarge);
  Graph graph(self, [&] {
    small.all_reduce();
    large.all_reduce();
    self.communicator.barrier(self.stream);
  });
  self.host.barrier();  // Nobody allocates memory while a kernel waits.
  for (int i = 0; i < replays; ++i) graph.replay();
  small.check(replays);
  large.check(replays);
  self.host.barrier();
}

TEST_F(DeviceGraphs, AThousandReplaysAreRight) {
  const int replays = shared() ? 100 : 1'000;  // Every wait takes milliseconds where processes share a GPU.
  run_on_devices(3, kMode, [=](DeviceRank& self) { replay_often(self, replays); });
}

TEST_F(DeviceGraphsOfThreads, AThousandReplaysAreRight) {
  testing::run_on_devices_as_threads(3, kMode, [](DeviceRank& self) { replay_often(self, 1'000); });
}

TEST_F(DeviceGraphs, CallsAndReplaysTakeTurns) {
  run_on_devices(3, kMode, [](DeviceRank& self) {
    Growing small(self, kSmall), large(self, kLarge);
    Graph one(self, [&] { small.all_reduce(); });
    Graph two(self, [&] {
      large.all_reduce();
      small.all_reduce();
    });
    for (int i = 0; i < 30; ++i) {
      one.replay();
      large.all_reduce();
      two.replay();
      small.all_reduce();
      if (i % 7 == 0) self.communicator.barrier(self.stream);
    }
    small.check(90);
    large.check(60);
  });
}

TEST_F(DeviceGraphs, EveryCollectiveOfAGraphIsRight) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    for (int c = 0; c < kCollectiveCount; ++c) {
      const auto collective = static_cast<Collective>(c);
      for (const std::size_t count : {std::size_t{7}, std::size_t{9'000}}) {
        const internal::CollectiveCase what{collective, DataType::f32, ReduceOp::avg, 2, 1, count, 5};
        DeviceArena arena(internal::CallBuffers::bytes_needed(what) + 64, self.device());
        const internal::CallBuffers buffers(what, self.rank(), false, arena.host());
        arena.upload(arena.size(), self.stream);
        Graph graph(self, [&] { start_on_device(self.communicator, what, buffers, arena, self.stream); });
        for (int i = 0; i < 3; ++i) graph.replay();
        arena.download(arena.size(), self.stream);
        self.synchronize();
        EXPECT_EQ(buffers.check_result(), "") << what.describe();
      }
    }
  });
}

/// Messages of one chunk and of many, round a ring, in turn with messages outside.
TEST_F(DeviceGraphs, MessagesAreRightInEveryReplay) {
  const int replays = shared() ? 10 : 100;
  run_on_devices(3, kMode, [=](DeviceRank& self) {
    constexpr std::size_t kCount = 30'000;
    DeviceArena mine(kCount * 4, self.device()), theirs(kCount * 4, self.device());
    auto* const values = reinterpret_cast<std::uint32_t*>(mine.host().data());
    const auto* const received = reinterpret_cast<const std::uint32_t*>(theirs.host().data());
    for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<std::uint32_t>(i);
    mine.upload(mine.size(), self.stream);
    const int right = (self.rank() + 1) % 3, left = (self.rank() + 2) % 3;
    const auto pass_on = [&](std::size_t count) {
      DeviceBatch batch = self.communicator.batch();
      batch.send(mine.device(), count, DataType::u32, right, self.stream);
      batch.recv(theirs.device(), count, DataType::u32, left, self.stream);
      batch.submit();
      self.communicator.all_reduce(theirs.device(), mine.device(), count, DataType::u32, ReduceOp::max,
                                   self.stream);
    };
    Graph graph(self, [&] {
      pass_on(kCount);
      pass_on(1);
    });
    for (int i = 0; i < replays; ++i) {
      graph.replay();
      if (i % 10 == 0) pass_on(100);
    }
    theirs.download(theirs.size(), self.stream);
    self.synchronize();
    for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(received[i], i);
  });
}

TEST_F(DeviceGraphs, ABatchInAGraphHasOneStream) {
  run_on_devices(1, kMode, [](DeviceRank& self) {
    DeviceArena arena(4096, self.device());
    internal::TestStream other(self.device());
    must(backend().begin_capture(self.stream));
    const auto [code, text] = testing::error_of([&] {
      DeviceBatch batch = self.communicator.batch();
      batch.send(arena.device(), 1, DataType::u8, 0, self.stream);
      batch.recv(arena.device(), 1, DataType::u8, 0, other);
      batch.submit();
    });
    EXPECT_EQ(code, ErrorCode::not_supported) << text;
    must(backend().destroy_graph(must(backend().end_capture(self.stream))));
  });
}

TEST_F(DeviceGraphs, AReplayKeepsItsDeadline) {
  Shared<std::atomic<bool>> over;
  run_on_devices(2, kMode, [&](DeviceRank& self) {
    Growing small(self, kSmall);
    DeviceCallOptions options;
    options.timeout = std::chrono::milliseconds(200);
    Graph graph(self, [&] { small.all_reduce(options); });
    if (self.rank() == 0) {
      graph.replay();
      self.stream.synchronize();  // Rank 1 never comes.
      EXPECT_EQ(self.communicator.state(), ErrorCode::timeout) << self.communicator.error_text();
      EXPECT_NE(self.communicator.error_text().find("rank 1"), std::string::npos)
          << self.communicator.error_text();
      over->store(true);
    } else {
      wait_until([&] { return over->load() && self.communicator.state() != ErrorCode::ok; });
    }
  });
}

TEST_F(DeviceGraphs, AnAbortReleasesReplays) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    Growing small(self, kSmall), large(self, kLarge);
    Graph graph(self, [&] {
      small.all_reduce();
      large.all_reduce();
    });
    if (self.rank() == 0) {
      for (int i = 0; i < 5; ++i) graph.replay();
    } else {
      internal::sleep_for(std::chrono::milliseconds(20));
      self.communicator.abort("enough");
    }
    self.stream.synchronize();
    wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
    EXPECT_EQ(self.communicator.state(), ErrorCode::aborted) << self.communicator.error_text();
  });
}

TEST_F(DeviceGraphs, AKilledRankIsNamedAndReplaysDrain) {
  testing::use_host_backend(kMode);
  const MeetingPlace place;
  struct Board {
    std::atomic<int> rounds[3]{};
    std::atomic<int> named{0};
  };
  Shared<Board> board;
  auto children = start_forked(3, [&](int rank) {
    DeviceRank self(place.join(rank, 3, "auto"));
    Growing small(self, kSmall), large(self, kLarge);
    Graph graph(self, [&] {
      small.all_reduce();
      large.all_reduce();
    });
    try {
      while (true) {
        for (int ahead = 0; ahead < 4; ++ahead) graph.replay();
        self.synchronize();
        board->rounds[rank].fetch_add(1);
      }
    } catch (const Error& error) {
      self.stream.synchronize();
      EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
      EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
      board->named.fetch_add(1);
    }
  });
  for (auto& rounds : board->rounds) wait_until([&] { return rounds.load() > 3; });
  kill(children[1], SIGKILL);
  EXPECT_EQ(wait_for(children[0]), 0);
  EXPECT_EQ(wait_for(children[2]), 0);
  wait_for(children[1]);
  EXPECT_EQ(board->named.load(), 2);
}

}  // namespace
}  // namespace lockstep
