// Ranks that write into a peer's window after the call has failed: whoever is under way is awaited, however
// long it takes, and nobody else begins.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <string_view>

#include "tests/device/communicator/device_world.hpp"
#include "tests/support/device_backend.hpp"
#include "tests/support/must.hpp"
#include "tests/support/test_run.hpp"

namespace lockstep {
namespace {

using internal::DeviceArena;
using internal::Status;
using internal::testing::Enqueued;
using internal::testing::must;
using internal::testing::Shared;
using internal::testing::wait_until;
using testing::backend;
using testing::DeviceRank;
using testing::run_on_devices;

const char* const kMode = testing::test_run("stream_sync");
constexpr std::size_t kBytes = 2 << 20;  // Too large for packets.
constexpr std::byte kMark{0x5a};

struct Stage {
  std::atomic<bool> called{false}, marked{false}, passed{false};
};

class Window {
 public:
  explicit Window(DeviceRank& self) : self_(self), arena_(kBytes, self.device()) {
    self.communicator.register_window(arena_.device(), kBytes, true);
    fill(std::byte{0x5b});  // A late sum would show.
  }
  void mark() { fill(kMark); }
  void expect_marked() {
    arena_.download(kBytes, self_.stream);
    self_.stream.synchronize();
    EXPECT_EQ(std::count(arena_.host().begin(), arena_.host().end(), kMark),
              static_cast<std::ptrdiff_t>(kBytes));
  }
  void all_reduce(std::chrono::milliseconds timeout = std::chrono::minutes(5)) {
    DeviceCallOptions options;
    options.timeout = timeout;
    self_.all_reduce(arena_, kBytes / sizeof(float), options);
  }

 private:
  void fill(std::byte byte) {
    std::fill(arena_.host().begin(), arena_.host().end(), byte);
    arena_.upload(kBytes, self_.stream);
    self_.stream.synchronize();
  }
  DeviceRank& self_;
  DeviceArena arena_;
};

/// The call, or a graph of it.
void run(DeviceRank& self, Window& window, std::chrono::milliseconds timeout, bool captured) {
  if (!captured) return window.all_reduce(timeout);
  must(backend().begin_capture(self.stream));
  window.all_reduce(timeout);
  const auto graph = must(backend().end_capture(self.stream));
  must(backend().replay(graph, self.stream));
  must(backend().destroy_graph(graph));
}

/// The kernel of rank 1 that writes does not get to run for longer than kernels take, by far.
void starve_a_writer(bool captured) {
  Shared<Stage> stage;
  run_on_devices(2, kMode, [&](DeviceRank& self) {
    Window window(self);
    auto* const word = static_cast<std::uint32_t*>(must(backend().allocate_pinned(sizeof(std::uint32_t))));
    if (self.rank() == 1)
      self.recorder.before = [&](const Enqueued& next) {
        return next.what == "reduce" ? backend().wait_value(word, 1, next.stream) : Status();
      };
    run(self, window, std::chrono::milliseconds(300), captured);
    if (self.rank() == 0) {
      self.stream.synchronize();
      window.mark();
      wait_until([&] { return stage->passed.load(); });
      EXPECT_EQ(self.communicator.state(), ErrorCode::timeout) << self.communicator.error_text();
      window.expect_marked();
    } else {
      wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
      internal::sleep_for(std::chrono::milliseconds(1200));
      // There the kernel is one of a stream of the library's own, for which the call does not wait for ever.
      if (kMode == std::string_view("host_sync"))
        wait_until(
            [&] { return self.communicator.error_text().find("may still write") != std::string::npos; });
      std::atomic_ref(*word).store(1);
      self.stream.synchronize();
      internal::sleep_for(std::chrono::milliseconds(50));  // In host_sync it waits on another stream.
      stage->passed.store(true);
    }
    must(backend().free_pinned(word));
  });
}

TEST(DeviceWriters, AreAwaitedHoweverLongTheyTake) { starve_a_writer(false); }
TEST(DeviceWriters, AreAwaitedByReplays) {
  if (!testing::kernels_wait(kMode, 2)) GTEST_SKIP();
  starve_a_writer(true);
}

/// Another thread may hear of a failure just before the call is in its stream, whose waits are let pass.
TEST(DeviceWriters, DoNotBeginWhereTheFailureIsOlderThanTheCall) {
  Shared<Stage> stage;
  run_on_devices(2, kMode, [&](DeviceRank& self) {
    Window window(self);
    if (self.rank() == 0) {
      wait_until([&] { return stage->called.load(); });
      self.communicator.abort("enough");
      window.mark();
      stage->marked.store(true);
      wait_until([&] { return stage->passed.load(); });
      window.expect_marked();
      return;
    }
    self.recorder.before = [&](const Enqueued& next) {
      if (next.what != "record" || stage->called.exchange(true)) return Status();
      wait_until([&] { return stage->marked.load() && self.communicator.state() != ErrorCode::ok; });
      return Status();
    };
    EXPECT_NO_THROW(window.all_reduce());
    self.stream.synchronize();
    EXPECT_EQ(self.communicator.state(), ErrorCode::aborted) << self.communicator.error_text();
    stage->passed.store(true);
  });
}

}  // namespace
}  // namespace lockstep
