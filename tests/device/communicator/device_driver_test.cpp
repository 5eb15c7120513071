// What a driver may do to its callers: block them, keep other threads from the device meanwhile, refuse an
// operation, and break a capture by a question.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include "lib/device/host/host_backend.hpp"
#include "tests/device/communicator/device_world.hpp"
#include "tests/support/device_backend.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/must.hpp"
#include "tests/support/test_run.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using internal::Backend;
using internal::CaptureScope;
using internal::DeviceArena;
using internal::Status;
using internal::testing::Enqueued;
using internal::testing::must;
using internal::testing::wait_until;
using testing::backend;
using testing::DeviceRank;
using testing::run_on_devices;
using testing::run_on_hosts;
using testing::thrown_by;

const char* const kMode = testing::test_run("stream_sync");
bool mode_is(const char* name) { return std::string_view(kMode) == name; }

void a_moment() { internal::sleep_for(std::chrono::milliseconds(50)); }

/// torch.cuda.graph captures so while other streams have calls in flight.
TEST(DeviceDriver, CallsInFlightAndACaptureOfTheProcessDoNotMind) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena arena(1 << 20, self.device());
    internal::TestStream captured(self.device());
    if (self.rank() == 1) {
      internal::sleep_for(std::chrono::milliseconds(100));
      self.all_reduce(arena, arena.size() / 4);
    } else {
      self.all_reduce(arena, arena.size() / 4);
      must(backend().begin_capture(captured, CaptureScope::process));
      a_moment();
      must(backend().destroy_graph(must(backend().end_capture(captured))));
    }
    self.synchronize();
  });
}

/// A full stream keeps whoever enqueues until it has moved, which this one does when its waits are let pass.
TEST(DeviceDriver, ACallThatBlocksWhileItIsEnqueuedIsEndedByAnAbort) {
  if (!mode_is("stream_sync")) GTEST_SKIP() << "the waits of the other modes need no stream of the caller";
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena arena(1 << 20, self.device());
    if (self.rank() == 1) {
      a_moment();
      self.communicator.abort("enough");
      return;
    }
    self.recorder.before = [&](const Enqueued& next) {
      if (next.what == "reduce") wait_until([&] { return must(backend().idle(self.stream)); });
      return Status();
    };
    self.all_reduce(arena, arena.size() / 4);
    self.stream.synchronize();
    wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
    EXPECT_EQ(self.communicator.state(), ErrorCode::aborted) << self.communicator.error_text();
  });
}

TEST(DeviceDriver, WhatTheDriverRefusesInTheMiddleOfACallIsToldToThePeers) {
  const char* const refused = mode_is("device_sync") ? "packets" : mode_is("host_sync") ? "wait" : "reduce";
  run_on_devices(2, kMode, [&](DeviceRank& self) {
    DeviceArena arena(4096, self.device());
    if (self.rank() == 0) {
      self.recorder.before = [&](const Enqueued& next) {
        return next.what == refused ? Status(ErrorCode::system, "a fault of the test") : Status();
      };
      EXPECT_THROW(self.all_reduce(arena, arena.size() / 4), Error);
    } else {
      self.all_reduce(arena, arena.size() / 4);
    }
    self.stream.synchronize();
    wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
    EXPECT_NE(self.communicator.state(), ErrorCode::timeout) << self.communicator.error_text();
  });
}

TEST(DeviceDriver, MessagesThatTheDriverRefusesAreToldToThePeers) {
  const char* const refused = mode_is("host_sync") ? "wait" : "messages";
  run_on_devices(2, kMode, [&](DeviceRank& self) {
    DeviceArena arena(4096, self.device());
    if (self.rank() == 0) {
      self.recorder.before = [&](const Enqueued& next) {
        return next.what == refused ? Status(ErrorCode::system, "a fault of the test") : Status();
      };
      EXPECT_THROW(self.communicator.send(arena.device(), 64, DataType::u8, 1, self.stream), Error);
    } else {
      self.communicator.recv(arena.device(), 64, DataType::u8, 0, self.stream);
    }
    self.stream.synchronize();
    wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
  });
}

/// The kernel that asks whether peers' memory is open stands behind a wait for the rest of its call.
TEST(DeviceDriver, AStreamGoesOnWhereTheDriverRefusesWhatAsksForThePeersMemory) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena arena(1 << 20, self.device());
    self.communicator.register_window(arena.device(), arena.size(), true);
    if (self.rank() == 0) {
      self.recorder.before = [](const Enqueued& next) {
        return next.what == "enter" ? Status(ErrorCode::system, "a fault of the test") : Status();
      };
    }
    const bool is_told = self.rank() == 0 && !mode_is("host_sync");
    if (is_told) {
      EXPECT_THROW(self.all_reduce(arena, arena.size() / 4), Error);
    } else {
      self.all_reduce(arena, arena.size() / 4);
    }
    self.stream.synchronize();
    wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
  });
}

TEST(DeviceDriver, ABufferOverTwoMappingsIsStagedAndOneInAMappingIsNot) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    constexpr std::size_t kPiece = 1 << 17;
    auto& host = static_cast<internal::HostBackend&>(backend());
    auto* const pieces = static_cast<std::byte*>(must(host.allocate_pieces(self.device(), kPiece, 2)));
    DeviceArena copy(2 * kPiece, self.device());
    auto* const values = reinterpret_cast<std::int32_t*>(copy.host().data());
    for (const std::size_t bytes : {kPiece, 2 * kPiece}) {
      std::byte* const buffer = pieces + 2 * kPiece - bytes;
      self.communicator.register_buffer(buffer, bytes);
      EXPECT_EQ(self.communicator.is_registered(buffer, bytes), bytes == kPiece);
      std::fill_n(values, bytes / 4, self.rank() + 1);
      must(backend().copy(buffer, values, bytes, self.stream));
      self.communicator.all_reduce(buffer, buffer, bytes / 4, DataType::i32, ReduceOp::sum, self.stream);
      must(backend().copy(values, buffer, bytes, self.stream));
      self.synchronize();
      EXPECT_EQ(std::count(values, values + bytes / 4, 3), static_cast<std::ptrdiff_t>(bytes / 4));
      self.communicator.deregister(buffer);
      EXPECT_THROW(self.communicator.register_buffer(buffer, bytes + 1), Error);
    }
    self.host.barrier();
    must(backend().free(pieces + kPiece));
    must(backend().free(pieces));
  });
}

TEST(DeviceDriver, StreamsThatWaitForOneAnotherAreFoundAtSetUp) {
  if (!mode_is("host_sync")) GTEST_SKIP() << "once is enough";
  internal::HostBackend own;
  const auto gate = must(internal::StreamGate::make(own, 0));
  const auto stream = must(own.create_stream(Backend::Priority::normal));
  auto* const word = static_cast<std::uint32_t*>(must(own.allocate_pinned(4)));
  must(own.wait_value(word, 1, stream));
  EXPECT_EQ(gate->probe(stream).code(), ErrorCode::not_supported);
  std::atomic_ref(*word).store(1);
  must(own.synchronize(stream));
  must(gate->probe(stream));
  must(own.free_pinned(word));
}

/// It waits there for the stream that the probe holds, and keeps the probe waiting.
TEST(DeviceDriver, AProbeEndsWhileAnotherThreadFreesMemory) {
  if (!mode_is("host_sync")) GTEST_SKIP() << "once is enough";
  internal::HostBackend own;
  internal::testing::RecordingBackend recorder(own);
  const auto gate = must(internal::StreamGate::make(recorder, 0));
  const auto stream = must(own.create_stream(Backend::Priority::normal));
  EXPECT_TRUE(testing::eventually([&] {  // Again where the other thread came too late.
    void* const memory = must(own.allocate(0, 4096, internal::MemoryKind::plain));
    std::thread other;
    recorder.before = [&](const Enqueued& next) {
      if (next.what == "write") {
        other = std::thread([&] { must(own.free(memory)); });
        a_moment();
      }
      return Status();
    };
    const ErrorCode probed = gate->probe(stream, internal::StreamGate::kShortProbe).code();
    other.join();
    return probed == ErrorCode::not_supported;
  }));
  EXPECT_EQ(internal::HostBackend::hangs(), 0);
  recorder.before = nullptr;
  must(gate->probe(stream));
}

/// A stream that waits keeps rank 0's own from the device, as where both share a connection.
void expect_deadline(const std::function<void(DeviceRank&, DeviceArena&)>& call, bool several_hosts = false) {
  const auto body = [&](DeviceRank& self) {
    DeviceArena arena(4096, self.device());
    auto* const word = static_cast<std::uint32_t*>(must(backend().allocate_pinned(4)));
    bool stuck = self.rank() == 1;
    self.recorder.before = [&](const Enqueued& next) {
      if (next.what != "copy" || std::exchange(stuck, true)) return Status();
      return backend().wait_value(word, 1, next.stream);
    };
    call(self, arena);
    self.stream.synchronize();
    wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
    EXPECT_EQ(self.communicator.state(), ErrorCode::timeout) << self.communicator.error_text();
    const bool is_named = self.communicator.error_text().find("MAX_CONNECTIONS") != std::string::npos;
    EXPECT_TRUE(is_named || self.rank() == 1) << self.communicator.error_text();
    std::atomic_ref(*word).store(1);
    EXPECT_THROW(self.communicator.wait(), Error);
    must(backend().free_pinned(word));
  };
  several_hosts ? run_on_hosts(2, kMode, body) : run_on_devices(2, kMode, body);
}

/// Of rank 0, which tells rank 1.
DeviceCallOptions soon(int rank) {
  DeviceCallOptions options;
  if (rank == 0) options.timeout = std::chrono::milliseconds(300);
  return options;
}

TEST(DeviceDriver, AnOwnStreamThatIsKeptFromTheDeviceIsADeadline) {
  if (!mode_is("host_sync")) GTEST_SKIP() << "in the other modes the caller's stream does it";
  expect_deadline([](DeviceRank& self, DeviceArena& arena) {
    self.communicator.all_reduce(arena.device(), arena.device(), 100, DataType::i32, ReduceOp::sum,
                                 self.stream, soon(self.rank()));
  });
  expect_deadline([](DeviceRank& self, DeviceArena& arena) {
    if (self.rank() == 0)
      self.communicator.send(arena.device(), 100, DataType::i32, 1, self.stream, soon(0));
    else
      self.communicator.recv(arena.device(), 100, DataType::i32, 0, self.stream);
  });
}

TEST(DeviceDriver, BetweenHostsACopyThatIsKeptFromTheDeviceIsADeadline) {
  if (!mode_is("host_sync")) GTEST_SKIP() << "the mode between hosts";
  ::setenv("LOCKSTEP_DEVICE_STRAIGHT", "off", 1);
  for (const ReduceOp op : {ReduceOp::sum, ReduceOp::premul_sum}) {
    expect_deadline(
        [op](DeviceRank& self, DeviceArena& arena) {
          DeviceCallOptions options = soon(self.rank());
          if (op == ReduceOp::premul_sum) options.device_scale = arena.device() + 2048;
          self.communicator.all_reduce(arena.device(), arena.device(), 100, DataType::f32, op, self.stream,
                                       options);
        },
        true);
  }
}

/// As with CUDA_DEVICE_MAX_CONNECTIONS=1, of which the probe tells the same.
TEST(DeviceDriver, KernelsThatWaitNeedNoStreamBesideAnother) {
  const bool needed = !mode_is("device_sync");
  testing::use_host_backend(kMode);
  const testing::MeetingPlace place;
  internal::testing::run_forked(2, [&](int rank) {
    Communicator host = place.join(rank, 2, "auto");
    internal::testing::RecordingBackend recorder(backend());
    bool probed = false;
    recorder.before = [&](const Enqueued& next) {
      if (next.what != "write" || std::exchange(probed, true)) return Status();
      return Status(ErrorCode::not_supported, "it does not arrive");
    };
    const auto make = [&] { return DeviceRank::make(host, recorder, rank); };
    if (needed) {
      EXPECT_THROW(make(), Error);
      return;
    }
    DeviceCommunicator ranks = make();
    const internal::TestStream stream(rank);
    const DeviceArena arena(1 << 20, rank);
    ranks.register_window(arena.device(), arena.size(), true);  // Is staged.
    static_cast<void>(recorder.take());
    for (const std::size_t bytes : {std::size_t{64}, arena.size()})
      ranks.all_reduce(arena.device(), arena.device(), bytes / 4, DataType::i32, ReduceOp::sum, stream);
    DeviceBatch batch = ranks.batch();
    batch.send(arena.device(), 64, DataType::u8, 1 - rank, stream);
    batch.recv(arena.device() + 64, 64, DataType::u8, 1 - rank, stream);
    batch.submit();
    stream.synchronize();
    ranks.wait();
    for (const Enqueued& one : recorder.take()) EXPECT_TRUE(one.what != "wait" && one.what != "write");
    ranks.finalize();
  });
}

/// Where streams wait for a thread, which such a load keeps from the driver.
TEST(DeviceDriver, KernelsThatAreLoadedLateAreWarnedOf) {
  ::testing::internal::CaptureStderr();
  run_on_devices(1, kMode, [](DeviceRank& self) {
    self.recorder.loads_late = true;
    DeviceRank::make(self.host, self.recorder, self.device()).finalize();
  });
  const bool warned =
      ::testing::internal::GetCapturedStderr().find("CUDA_MODULE_LOADING") != std::string::npos;
  EXPECT_EQ(warned, mode_is("host_sync"));
}

/// A thread that does not get the device would work on another.
TEST(DeviceDriver, AThreadWithoutTheDeviceDoesNothing) {
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena arena(4096, self.device());
    self.recorder.lets_enter = false;
    EXPECT_THROW(self.communicator.register_buffer(arena.device(), arena.size()), Error);
    EXPECT_THROW(self.communicator.send(arena.device(), 64, DataType::u8, 1 - self.rank(), self.stream),
                 Error);
    self.recorder.lets_enter = true;
    self.all_reduce(arena, arena.size() / 4);
    self.synchronize();
    self.communicator.register_buffer(arena.device(), arena.size());
    self.host.barrier();  // From here on a call that is refused ends the group.
    self.recorder.lets_enter = false;
    EXPECT_THROW(self.communicator.deregister(arena.device()), Error);
    EXPECT_THROW(self.all_reduce(arena, arena.size() / 4), Error);
    self.recorder.lets_enter = true;
    wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
  });
}

TEST(DeviceDriver, ACaptureThatTheModeCannotReplayIsRefusedAndNobodyElseHears) {
  if (!mode_is("host_sync")) GTEST_SKIP() << "the other modes record it";
  run_on_devices(2, kMode, [](DeviceRank& self) {
    DeviceArena arena(4096, self.device());
    must(backend().begin_capture(self.stream));
    EXPECT_THROW(self.all_reduce(arena, arena.size() / 4), Error);
    EXPECT_THROW(self.communicator.send(arena.device(), 64, DataType::u8, 1 - self.rank(), self.stream),
                 Error);
    must(backend().destroy_graph(must(backend().end_capture(self.stream))));
    self.all_reduce(arena, arena.size() / 4);
    self.synchronize();
  });
}

TEST(DeviceDriver, MessagesLieOnTheDeviceOfTheirCommunicator) {
  run_on_devices(1, kMode, [](DeviceRank& self) {
    DeviceArena elsewhere(4096, self.device() + 1);
    const Error error =
        thrown_by([&] { self.communicator.send(elsewhere.device(), 64, DataType::u8, 0, self.stream); });
    EXPECT_NE(std::string(error.what()).find("lies on device 1"), std::string::npos) << error.what();
  });
}

}  // namespace
}  // namespace lockstep
