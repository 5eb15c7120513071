// How operations on devices end when they cannot go on: no stream stays blocked, the error names its cause,
// and nothing is written afterwards.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "tests/device/communicator/device_world.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/bounds.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/must.hpp"
#include "tests/support/no_descriptors_left.hpp"
#include "tests/support/test_run.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using internal::DeviceArena;
using internal::testing::must;
using internal::testing::Shared;
using internal::testing::start_forked;
using internal::testing::wait_for;
using internal::testing::wait_until;
using testing::allowed;
using testing::DeviceRank;
using testing::MeetingPlace;
using testing::run_on_devices;
using testing::thrown_by;
using Clock = std::chrono::steady_clock;

const testing::DeviceRun kRun(testing::test_run("stream_sync"));
const char* const kMode = kRun.mode.c_str();

struct KillBoard {
  std::array<std::atomic<int>, 3> running{};
  std::atomic<std::int64_t> killed_at{0};
  std::atomic<int> named{0};
};

/// One of three ranks is killed in the middle of operations that are enqueued ahead. In windows: all data go
/// straight from and to the arenas.
void survive_a_kill(int victim, bool in_windows) {
  testing::use_host_backend(kMode);
  const MeetingPlace place;
  Shared<KillBoard> board;
  constexpr std::size_t kCount = 1 << 18;
  auto children = start_forked(3, [&](int rank) {
    DeviceRank self(place.join(rank, 3, "auto"));
    DeviceArena arena(kCount * sizeof(float), self.device());
    arena.upload(arena.size(), self.stream);
    if (in_windows) self.communicator.register_window(arena.device(), arena.size(), true);
    try {
      while (true) {
        for (int ahead = 0; ahead < 4; ++ahead) self.all_reduce(arena, kCount);
        self.synchronize();
        board->running[static_cast<std::size_t>(rank)].fetch_add(1);
      }
    } catch (const Error& error) {
      self.stream.synchronize();  // Everything enqueued has passed.
      const auto late = Clock::now().time_since_epoch() - Clock::duration(board->killed_at.load());
      EXPECT_LT(late, allowed(std::chrono::seconds(2)));
      EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
      EXPECT_NE(std::string(error.what()).find("rank " + std::to_string(victim)), std::string::npos)
          << error.what();
      EXPECT_THROW(self.all_reduce(arena, 8), Error);
      board->named.fetch_add(1);
    }
  });
  for (auto& running : board->running) wait_until([&] { return running.load() > 3; });
  board->killed_at = Clock::now().time_since_epoch().count();
  kill(children[static_cast<std::size_t>(victim)], SIGKILL);
  for (int rank = 0; rank < 3; ++rank) {
    const int status = wait_for(children[static_cast<std::size_t>(rank)]);
    EXPECT_TRUE(status == 0 || rank == victim) << "rank " << rank;
  }
  EXPECT_EQ(board->named.load(), 2);
}

TEST(DeviceFailure, AKilledRankIsNamedAndStreamsDrain) { survive_a_kill(1, false); }
TEST(DeviceFailure, AKilledRankIsNamedAndStreamsDrainInWindows) { survive_a_kill(1, true); }
/// Where ranks take turns it is the one that works for all.
TEST(DeviceFailure, TheFirstRankIsNamedIfKilledAndStreamsDrainInWindows) { survive_a_kill(0, true); }

/// And not the peer, whose memory it cannot map for want of descriptors. Other modes map nothing in a call.
TEST(DeviceFailure, ARankThatLacksDescriptorsIsNamed) {
  if (!testing::kDescriptorsCanRunOut || std::string(kMode) != "host_sync") GTEST_SKIP();
  constexpr std::size_t kCount = 1 << 20;
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena arena(kCount * sizeof(float), self.device());
    arena.upload(arena.size(), self.stream);
    self.stream.synchronize();
    self.communicator.register_buffer(arena.device(), arena.size());
    std::optional<testing::NoDescriptorsLeft> none;
    if (self.rank() == 1) none.emplace();
    const Error error = thrown_by([&] {
      self.all_reduce(arena, kCount);
      self.synchronize();
    });
    EXPECT_EQ(error.code(), ErrorCode::system) << error.what();
    EXPECT_NE(std::string(error.what()).find("rank 1 ("), std::string::npos) << error.what();
  });
}

TEST(DeviceFailure, AnAbortReleasesTheStreamsOfAllRanks) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena arena(4096, self.device());
    if (self.rank() == 0) {
      for (int i = 0; i < 5; ++i) self.all_reduce(arena, 100);  // Rank 1 never comes.
      internal::sleep_for(std::chrono::milliseconds(20));
      self.communicator.abort("enough");
    } else {
      self.communicator.recv(arena.device(), 100, DataType::f32, 0, self.stream);
    }
    self.stream.synchronize();
    wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
    EXPECT_EQ(self.communicator.state(), ErrorCode::aborted) << self.communicator.error_text();
    EXPECT_NE(self.communicator.error_text().find("enough"), std::string::npos)
        << self.communicator.error_text();
    EXPECT_THROW(self.all_reduce(arena, 1), Error);
  });
}

/// Rank 1 does the first step of a set-up, and no more.
TEST(DeviceFailure, AnAbortEndsASetUpThatWaits) {
  testing::use_host_backend(kMode);
  const MeetingPlace place;
  Shared<std::atomic<bool>> over;
  internal::testing::run_forked(2, [&](int rank) {
    Communicator host = place.join(rank, 2, "auto");
    if (rank == 1) {
      const auto control = host.core().split(0, rank);  // Fails where the abort is sooner.
      EXPECT_TRUE(testing::eventually([&] { return over->load(); }));
      return;
    }
    std::thread sets_up([&] {
      const auto [code, text] = testing::error_of([&] { DeviceCommunicator(host, 0); });
      EXPECT_EQ(code, ErrorCode::aborted) << text;
      EXPECT_NE(text.find("enough"), std::string::npos) << text;
      over->store(true);
    });
    internal::sleep_for(std::chrono::milliseconds(100));  // It may come at any moment.
    host.abort("enough");
    sets_up.join();
  });
}

TEST(DeviceFailure, ADeadlineNamesWhoIsAwaited) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena arena(4096, self.device());
    if (self.rank() == 0) {
      DeviceCallOptions options;
      options.timeout = std::chrono::milliseconds(200);
      self.all_reduce(arena, 100, options);
      self.stream.synchronize();
      EXPECT_EQ(self.communicator.state(), ErrorCode::timeout) << self.communicator.error_text();
      EXPECT_NE(self.communicator.error_text().find("rank 1"), std::string::npos)
          << self.communicator.error_text();
    } else {
      wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
      EXPECT_EQ(self.communicator.state(), ErrorCode::timeout) << self.communicator.error_text();
    }
  });
}

/// It has made its call, ahead of what its stream is busy with.
TEST(DeviceFailure, ADeadlineNamesWhoseStreamHasNotCome) {
  run_on_devices(3, kMode, [](DeviceRank& self) {
    DeviceArena arena(1 << 20, self.device());
    internal::Backend& backend = *must(internal::device_backend());
    auto* const word = static_cast<std::uint32_t*>(must(backend.allocate_pinned(4)));
    DeviceCallOptions options;
    options.timeout = std::chrono::milliseconds(500);
    if (self.rank() == 1) must(backend.wait_value(word, 1, self.stream));
    self.all_reduce(arena, 1 << 18, options);
    wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
    std::atomic_ref(*word).store(1);
    self.stream.synchronize();
    EXPECT_EQ(self.communicator.state(), ErrorCode::timeout) << self.communicator.error_text();
    EXPECT_NE(self.communicator.error_text().find("rank 1 ("), std::string::npos)
        << self.communicator.error_text();
    must(backend.free_pinned(word));
  });
}

/// Its waits were let pass, those for a rank among them that never came, and knows of no operation under way.
TEST(DeviceFailure, ARankThatGaveUpWritesNothingIntoTheMemoryOfOneThatDidNotCome) {
  struct Stage {
    std::atomic<bool> called{false}, marked{false}, passed{false};
  };
  Shared<Stage> stage;
  run_on_devices(2, kMode, [&](DeviceRank& self) {
    DeviceArena arena(1 << 20, self.device());
    self.communicator.register_window(arena.device(), arena.size(), true);
    internal::Backend& backend = *must(internal::device_backend());
    auto* const word = static_cast<std::uint32_t*>(must(backend.allocate_pinned(4)));
    if (self.rank() == 0) {
      wait_until([&] { return stage->called.load(); });
      self.communicator.abort("enough");
      std::fill(arena.host().begin(), arena.host().end(), std::byte{0x5a});
      arena.upload(arena.size(), self.stream);
      self.stream.synchronize();
      stage->marked.store(true);
      wait_until([&] { return stage->passed.load(); });
      arena.download(arena.size(), self.stream);
      self.stream.synchronize();
      EXPECT_EQ(std::count(arena.host().begin(), arena.host().end(), std::byte{0x5a}),
                static_cast<std::ptrdiff_t>(arena.size()));
    } else {
      std::fill(arena.host().begin(), arena.host().end(), std::byte{0x5b});  // A late sum would show.
      arena.upload(arena.size(), self.stream);
      must(backend.wait_value(word, 1, self.stream));  // It comes to its call when the other has marked.
      self.all_reduce(arena, arena.size() / sizeof(float));
      stage->called.store(true);
      wait_until([&] { return self.communicator.state() != ErrorCode::ok && stage->marked.load(); });
      std::atomic_ref(*word).store(1);
      self.stream.synchronize();
      stage->passed.store(true);
    }
    must(backend.free_pinned(word));
  });
}

/// A rank that is stopped, and resumes after the others gave it up, writes nothing into their buffers.
/// Rank 0, which writes to others in every mode. `stops_at`: in its fifth call before it, or in it when what
/// it enqueues next is called so. (raise, not kill: the thread that calls it goes no further.)
void stop_and_resume(const std::string& stops_at) {
  testing::use_host_backend(kMode);
  const MeetingPlace place;
  struct Stage {
    std::atomic<int> gave_up{0}, resumed{0};
  };
  Shared<Stage> stage;
  constexpr std::size_t kCount = 1 << 19;  // Too large for packets.
  auto children = start_forked(2, [&](int rank) {
    DeviceRank self(place.join(rank, 2, "auto"));
    DeviceArena arena(kCount * sizeof(float), self.device());
    self.communicator.register_window(arena.device(), arena.size(), true);
    std::fill(arena.host().begin(), arena.host().end(), std::byte{0x5b});  // A late sum would show.
    arena.upload(arena.size(), self.stream);
    DeviceCallOptions options;
    options.timeout = std::chrono::milliseconds(300);
    try {
      for (int call = 0;; ++call) {
        if (rank == 0 && call == 4) {
          if (stops_at.empty()) raise(SIGSTOP);
          self.recorder.before = [&](const internal::testing::Enqueued& next) {
            if (next.what == stops_at) {
              internal::sleep_for(std::chrono::milliseconds(20));  // What does not wait has time to run.
              raise(SIGSTOP);
            }
            return internal::Status();
          };
        }
        self.all_reduce(arena, kCount, options);
        self.synchronize();
      }
    } catch (const Error&) {
    }
    if (rank == 0) {
      stage->resumed.store(1);
      return;
    }
    self.stream.synchronize();
    for (auto& byte : arena.host()) byte = std::byte{0x5a};
    arena.upload(arena.size(), self.stream);
    self.stream.synchronize();
    stage->gave_up.store(1);
    wait_until([&] { return stage->resumed.load() == 1; });
    internal::sleep_for(std::chrono::milliseconds(50));
    arena.download(arena.size(), self.stream);
    self.stream.synchronize();
    EXPECT_TRUE(std::all_of(arena.host().begin(), arena.host().end(),
                            [](std::byte byte) { return byte == std::byte{0x5a}; }));
  });
  wait_until([&] { return stage->gave_up.load() == 1; });
  wait_until([&] {  // Once is too early for a rank that is late to stop.
    kill(children[0], SIGCONT);
    return stage->resumed.load() == 1;
  });
  EXPECT_EQ(wait_for(children[0]), 0);
  EXPECT_EQ(wait_for(children[1]), 0);
}

TEST(DeviceFailure, AStoppedRankWritesNothingAfterTheOthersReturned) { stop_and_resume(""); }
/// Its last look at the revoke is behind it, its kernel is not started.
TEST(DeviceFailure, ARankStoppedBeforeItsKernelWritesNothingAfterTheOthersReturned) {
  stop_and_resume("reduce");
}
TEST(DeviceFailure, ARankStoppedBehindItsKernelWritesNothingAfterTheOthersReturned) {
  stop_and_resume("leave");
}

}  // namespace
}  // namespace lockstep
