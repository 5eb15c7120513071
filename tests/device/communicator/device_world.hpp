// Ranks on devices as forked processes: on the host backend, or on that which LOCKSTEP_DEVICE_BACKEND names.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "collectives/device/device_core.hpp"
#include "tests/device/communicator/crew.hpp"
#include "tests/device/communicator/device_call.hpp"
#include "tests/engine/process_group.hpp"
#include "tests/support/forked.hpp"
#include "tests/support/host_of_rank.hpp"
#include "tests/support/recording_backend.hpp"
#include "tests/support/test_run.hpp"

namespace lockstep::testing {

/// A run of a program (test_run.hpp): MODE; MODE_threads, in which ranks are threads of one process; or
/// MODE_turns, in which they share a device and hear that processes take turns on it, as without MPS.
struct DeviceRun {
  explicit DeviceRun(const std::string& name)
      : mode(name.substr(0, std::min(name.find("_threads"), name.find("_turns")))),
        in_threads(name.ends_with("_threads")),
        takes_turns(name.ends_with("_turns")) {}
  std::string mode;
  bool in_threads, takes_turns;
};
inline bool take_turns() { return DeviceRun(test_run("")).takes_turns; }

/// Ranks take the devices in turn; the host backend has enough for all.
inline int device_of(int rank) {
  internal::Backend& backend = **internal::device_backend();
  return take_turns() ? 0 : rank % backend.device_count().value();
}

/// What `run_on_devices` gives each rank. `shared`: the backend of ranks in one process, of which memory is;
/// then nothing is recorded.
struct DeviceRank {
  explicit DeviceRank(Communicator joined, internal::Backend* shared = nullptr)
      : host(std::move(joined)),
        recorder(**internal::device_backend(), take_turns()),
        communicator(make(host, shared != nullptr ? *shared : recorder, device_of(host.rank()))),
        stream(device_of(host.rank())) {
    recorder.select(device_of(host.rank())).throw_if_error();
    static_cast<void>(recorder.take());  // Of set-up.
  }

  static DeviceCommunicator make(Communicator& host, internal::Backend& backend, int device) {
    auto core = internal::DeviceCore::make(host.core(), &backend, device, {});
    core.status().throw_if_error();
    return DeviceCommunicator(std::move(*core));
  }
  int rank() const { return communicator.rank(); }
  int size() const { return communicator.size(); }
  int device() const { return communicator.device(); }
  /// The sum of the first `count` f32 there, in place.
  void all_reduce(const internal::DeviceArena& arena, std::size_t count,
                  const DeviceCallOptions& options = {}) {
    communicator.all_reduce(arena.device(), arena.device(), count, DataType::f32, ReduceOp::sum, stream,
                            options);
  }
  /// Waits for the stream, and throws what the communicator failed with.
  void synchronize() {
    stream.synchronize();
    if (communicator.state() != ErrorCode::ok) throw Error(communicator.state(), communicator.error_text());
  }

  Communicator host;
  internal::testing::RecordingBackend recorder;  ///< Sees what the communicator enqueues.
  DeviceCommunicator communicator;
  internal::TestStream stream;
};

/// Of an all_reduce of two ranks on `bytes` of registered memory, recorded since the last look: each byte was
/// touched once, by the rank whose half it is in, or by rank 0 where the ranks' kernels take turns.
inline void expect_one_reduction(DeviceRank& self, std::size_t bytes, bool take_turns) {
  std::size_t reduced = 0;
  for (const internal::testing::Enqueued& one : self.recorder.take()) {
    EXPECT_NE(one.what, "copy");
    if (one.what != "reduce") continue;
    EXPECT_EQ(reduced, 0u) << "one kernel";
    EXPECT_EQ(one.sources.size(), 2u);
    EXPECT_EQ(one.destinations.size(), 2u);
    reduced += one.bytes;
  }
  if (take_turns) {
    EXPECT_EQ(reduced, self.rank() == 0 ? bytes : 0);
  } else {
    EXPECT_NEAR(static_cast<double>(reduced), static_cast<double>(bytes / 2), 256);
  }
}

inline void use_host_backend(const char* mode) {
  ::setenv("LOCKSTEP_DEVICE_BACKEND", "host", 0);
  ::setenv("LOCKSTEP_DEVICE_MODE", mode, 1);
}

/// Whether processes that share a device here take turns on it, so that waiting for a peer costs time slices
/// and mode stream_sync captures nothing. Asked in a process of its own: nothing may use a GPU before ranks
/// are forked.
inline bool take_time_slices(int world) {
  if (take_turns()) return true;
  internal::testing::Shared<std::atomic<bool>> slices;
  internal::testing::run_forked(1, [&](int) {
    use_host_backend("host_sync");
    internal::Backend& backend = **internal::device_backend();
    slices->store(backend.device_count().value() < world &&
                  !backend.identify(0).value().kernels_of_processes_overlap);
  });
  return slices->load();
}

/// Whether kernels wait in this mode where streams do not: then they carry messages and calls are captured.
inline bool kernels_wait(std::string_view mode, int world) {
  return mode == "device_sync" || (mode == "stream_sync" && !take_time_slices(world));
}

/// Runs body(rank) as rank `rank` and finalizes; exceptions become failures that name the rank.
inline void run_rank(int rank, int world, const std::string& store,
                     const std::function<void(DeviceRank&)>& body, internal::Backend* shared = nullptr,
                     const char* transports = "auto") {
  try {
    DeviceRank self(join_at(store, rank, world, transports), shared);
    body(self);
    if (self.communicator.state() == ErrorCode::ok) self.communicator.finalize();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "rank " << rank << ": " << error.what();
  }
}

/// Ranks that are threads of this process, whose kernels run side by side on one GPU.
inline void run_threads(int world, const std::string& store, const std::function<void(DeviceRank&)>& body) {
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world; ++rank)
    ranks.emplace_back([&, rank] { run_rank(rank, world, store, body, *internal::device_backend()); });
  for (std::thread& rank : ranks) rank.join();
}

/// In `world` processes. A body that captures nothing is the same in all of them, so a crew can run it: it
/// must not ask which case this is, nor read what a case has changed.
template <class Body>
void run_on_devices(int world, const char* mode, const Body& body) {
  use_host_backend(mode);
  const MeetingPlace place;
  if constexpr (std::is_empty_v<Body>) {
    const auto task = [](int rank, int ranks, const std::string& store) {
      run_rank(rank, ranks, store, Body());
    };
    if (crew_is_wanted()) return run_on_crew(world, task, world, place.store());
  }
  internal::testing::run_forked(world, [&](int rank) { run_rank(rank, world, place.store(), body); });
}

/// Until this rank has heard of the end of its communicator.
inline void wait_for_failure(DeviceRank& self) {
  internal::testing::wait_until([&] { return self.communicator.state() != ErrorCode::ok; });
}

/// In processes on two hosts, half of them on each, or on as many more.
inline void run_on_hosts(int world, const char* mode, const std::function<void(DeviceRank&)>& body,
                         const char* transports = "auto", int hosts = 2) {
  use_host_backend(mode);
  const MeetingPlace place;
  internal::testing::run_forked(world, [&](int rank) {
    live_on_host(hosts * rank / world);
    run_rank(rank, world, place.store(), body, nullptr, transports);
  });
}

/// In threads of one process.
template <class Body>
void run_on_devices_as_threads(int world, const char* mode, const Body& body) {
  use_host_backend(mode);
  const MeetingPlace place;
  if constexpr (std::is_empty_v<Body>) {
    const auto task = [](int, int ranks, const std::string& store) { run_threads(ranks, store, Body()); };
    if (crew_is_wanted()) return run_on_crew(1, task, world, place.store());
  }
  internal::testing::run_forked(1, [&](int) { run_threads(world, place.store(), body); });
}

}  // namespace lockstep::testing
