// Calls on devices that differ from those of other ranks, or are wrong: all hear of it, with both sides'
// names.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "tests/device/communicator/device_world.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/must.hpp"
#include "tests/support/test_run.hpp"

namespace lockstep {
namespace {

using internal::DeviceArena;
using internal::testing::must;
using internal::testing::wait_until;
using testing::DeviceRank;
using testing::run_on_devices;

const testing::DeviceRun kRun(testing::test_run("stream_sync"));
const char* const kMode = kRun.mode.c_str();

TEST(DeviceRefusal, DifferentCallsNameBothSides) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena arena(1 << 16, self.device());
    self.all_reduce(arena, 100);
    self.all_reduce(arena, self.rank() == 0 ? 100 : 101);
    self.stream.synchronize();
    wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
    EXPECT_EQ(self.communicator.state(), ErrorCode::mismatch) << self.communicator.error_text();
    for (const char* part : {"f32 x 100", "f32 x 101", "rank 0", "rank 1"}) {
      EXPECT_NE(self.communicator.error_text().find(part), std::string::npos)
          << self.communicator.error_text();
    }
  });
}

/// Which no description of a call shows.
TEST(DeviceRefusal, CountsThatDifferAreSaidToBeWhatDiffers) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena arena(1 << 16, self.device());
    const std::size_t counts[] = {100, self.rank() == 0 ? 100u : 101u};
    self.communicator.all_gather_v(arena.device(), arena.device() + (1 << 12), counts, DataType::f32,
                                   self.stream);
    self.stream.synchronize();
    wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
    EXPECT_EQ(self.communicator.state(), ErrorCode::mismatch) << self.communicator.error_text();
    EXPECT_NE(self.communicator.error_text().find("the same with other counts"), std::string::npos)
        << self.communicator.error_text();
  });
}

/// The streams pass, with wrong results, while the threads that would see why are asleep.
TEST(DeviceRefusal, WhoAsksWhenItsStreamHasPassedHearsOfDifferentCalls) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena arena(1 << 16, self.device());
    if (self.rank() == 1) internal::sleep_for(std::chrono::milliseconds(20));
    self.communicator.all_reduce(arena.device(), arena.device(), 100, DataType::f32,
                                 self.rank() == 0 ? ReduceOp::sum : ReduceOp::max, self.stream);
    self.stream.synchronize();
    EXPECT_EQ(self.communicator.state(), ErrorCode::mismatch) << self.communicator.error_text();
    self.host.barrier();
  });
}

/// All ranks have made more calls since than they keep in mind, and no stream has come to the one that
/// differs.
TEST(DeviceRefusal, DifferentCallsAreFoundHoweverFarBehindTheStreamsAre) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena arena(4096, self.device());
    internal::Backend& backend = *must(internal::device_backend());
    auto* const word = static_cast<std::uint32_t*>(must(backend.allocate_pinned(4)));
    must(backend.wait_value(word, 1, self.stream));
    const auto call = [&](ReduceOp op) {
      self.communicator.all_reduce(arena.device(), arena.device(), 10, DataType::i32, op, self.stream);
    };
    call(ReduceOp::sum);
    call(self.rank() == 0 ? ReduceOp::sum : ReduceOp::max);
    // No more: a stream of a GPU that waits takes about a thousand operations.
    for (std::size_t i = 0; i <= internal::kRecentCalls; ++i) call(ReduceOp::sum);
    self.host.barrier();
    std::atomic_ref(*word).store(1);
    self.stream.synchronize();
    EXPECT_THROW(self.communicator.wait(), Error);
    EXPECT_EQ(self.communicator.state(), ErrorCode::mismatch) << self.communicator.error_text();
    must(backend.free_pinned(word));
  });
}

TEST(DeviceRefusal, WrongArgumentsAreRefusedHereAndToldThere) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena arena(4096, self.device());
    std::vector<float> host(100);
    if (self.rank() == 0) {
      const auto [code, text] = testing::error_of([&] {
        self.communicator.all_reduce(host.data(), arena.device(), 100, DataType::f32, ReduceOp::sum,
                                     self.stream);
      });
      EXPECT_EQ(code, ErrorCode::invalid_argument);
      EXPECT_NE(text.find("input is not memory of a device"), std::string::npos) << text;
    } else {
      self.all_reduce(arena, 100);
    }
    self.stream.synchronize();
    wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
    // The rank itself may hear first of its own error or of the group's end by it.
    const ErrorCode state = self.communicator.state();
    EXPECT_TRUE(state == ErrorCode::refused || (self.rank() == 0 && state == ErrorCode::invalid_argument))
        << self.communicator.error_text();
  });
}

TEST(DeviceRefusal, ARefusedCallIsToldToWhoWaitsForAMessage) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena arena(4096, self.device());
    if (self.rank() == 0) {
      EXPECT_EQ(testing::error_of([&] {
                  self.communicator.all_reduce(&arena, &arena, 100, DataType::f32, ReduceOp::sum,
                                               self.stream);
                }).first,
                ErrorCode::invalid_argument);
    } else {
      self.communicator.recv(arena.device(), 100, DataType::f32, 0, self.stream);
    }
    self.stream.synchronize();
    wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
    if (self.rank() == 1) {
      EXPECT_EQ(self.communicator.state(), ErrorCode::refused) << self.communicator.error_text();
    }
  });
}

TEST(DeviceRefusal, ABroadcastsRootIsRefusedBuffersThatOverlap) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena arena(4096, self.device());
    const auto broadcast = [&](std::size_t apart) {
      self.communicator.broadcast(arena.device(), arena.device() + apart, 100, DataType::f32, 0, self.stream);
    };
    broadcast(0);
    broadcast(400);
    self.synchronize();
    self.host.barrier();
    if (self.rank() == 0) {
      const auto [code, text] = testing::error_of([&] { broadcast(396); });
      EXPECT_EQ(code, ErrorCode::invalid_argument);
      EXPECT_NE(text.find("overlap"), std::string::npos) << text;
    } else {
      broadcast(396);  // Its input counts for nothing.
    }
    self.stream.synchronize();
    wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
  });
}

/// A kernel that read it would end the whole process's use of the device.
TEST(DeviceRefusal, AFactorThatTheDeviceCannotReadIsRefused) {
  run_on_devices(1, kMode, [](DeviceRank& self) {
    DeviceArena arena(4096, 0);
    const float host = 2;
    const auto scaled_by = [&](const void* factor) {
      DeviceCallOptions options;
      options.device_scale = factor;
      self.communicator.all_reduce(arena.device(), arena.device(), 100, DataType::f32, ReduceOp::premul_sum,
                                   self.stream, options);
    };
    for (const void* const factor :
         {static_cast<const void*>(&host), static_cast<const void*>(arena.device() + 2)}) {
      const auto [code, text] = testing::error_of([&] { scaled_by(factor); });
      EXPECT_EQ(code, ErrorCode::invalid_argument);
      EXPECT_NE(text.find("device_scale is not"), std::string::npos) << text;
    }
    scaled_by(arena.device() + 400);
    self.synchronize();
  });
}

/// It has peers read inputs where they lie, unscaled: no registration of these would help.
TEST(DeviceRefusal, AFactorIsNamedWhereAnAlgorithmCannotApplyIt) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena arena(1 << 20, self.device());
    self.communicator.register_window(arena.device(), arena.size(), true);
    DeviceCallOptions options;
    options.algorithm = "fused";
    std::string text;
    try {
      self.communicator.all_reduce(arena.device(), arena.device(), arena.size() / 4, DataType::f32,
                                   ReduceOp::premul_sum, self.stream, options);
      self.stream.synchronize();
      wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
      text = self.communicator.error_text();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::not_supported);
      text = error.what();
    }
    EXPECT_NE(text.find("premul_sum scales"), std::string::npos) << text;
    EXPECT_EQ(text.find("register_"), std::string::npos) << text;
    wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
  });
}

TEST(DeviceRefusal, AUsersOperatorIsRefused) {
  run_on_devices(1, kMode, [](DeviceRank& self) {
    DeviceArena arena(4096, 0);
    DeviceCallOptions options;
    for (const bool given : {false, true}) {  // That none was given is not what is wrong.
      if (given) options.user_op.combine = [](const void*, void*, std::size_t, void*) {};
      const auto [code, text] = testing::error_of([&] {
        self.communicator.all_reduce(arena.device(), arena.device(), 1, DataType::f32, ReduceOp::user,
                                     self.stream, options);
      });
      EXPECT_EQ(code, ErrorCode::not_supported) << text;
    }
    self.all_reduce(arena, 1);  // Alone nobody is out of step after that.
    self.synchronize();
  });
}

}  // namespace
}  // namespace lockstep
