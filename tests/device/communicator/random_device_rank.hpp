// A rank that makes random operations on a device, the same ones as its peers: see device_random_test.cpp.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "lib/device/backend.hpp"
#include "tests/device/communicator/device_call.hpp"
#include "tests/device/communicator/random_messages.hpp"
#include "tests/engine/process_group.hpp"

namespace lockstep::internal {

class RandomDeviceRank {
 public:
  RandomDeviceRank(int rank, int world, const lockstep::testing::MeetingPlace& place, bool several_hosts,
                   std::uint64_t seed);
  ~RandomDeviceRank();
  RandomDeviceRank(const RandomDeviceRank&) = delete;
  RandomDeviceRank& operator=(const RandomDeviceRank&) = delete;

  Communicator& host() { return host_; }
  DeviceCommunicator& communicator() { return communicator_; }
  /// One of those on which it calls; each goes on behind the graphs before.
  Stream stream() { return *streams_[own_() % streams_.size()]; }
  /// Of operations since the begin.
  std::uint64_t done() const { return done_; }
  /// Of every call from here on; 0 is none.
  void set_timeout(std::chrono::milliseconds timeout) { options_.timeout = timeout; }
  /// Is called before each operation.
  std::function<void()> before = [] {};

  /// Some operations without a wait in between, whose results are looked at together. Throws the Error that
  /// ended the communicator, or another exception that tells what is wrong.
  void run_round();
  /// Between rounds, on all ranks: other memory.
  void register_again();

  /// Whatever happened, all streams come to their end.
  void drain();
  /// When they have: the memory of calls is filled, and nothing but this rank writes there.
  void mark_memory();
  std::string check_marks();

 private:
  enum Memory : std::size_t { kPrivate, kRegistered, kWindow };
  struct Prepared {
    CollectiveCase what;
    DeviceArena& arena;
    std::size_t at, bytes;  ///< In the arena.
    CallBuffers buffers;
  };

  void finish_round();
  void run_operation(bool large);
  void run_collective(bool large, Stream stream);
  void broadcast_apart(const Prepared& call, Stream stream);
  void run_graph();
  DeviceGraph capture_calls(Stream stream);
  void run_messages(const std::vector<Stream>& streams);
  void join_streams();
  void fetch();

  Prepared prepare(bool large);
  std::size_t take(std::size_t bytes);
  const void* factor_of(const CollectiveCase& what, Stream stream);
  bool captures() const { return communicator_.mode() != DeviceMode::host_sync && !several_hosts_; }

  const bool several_hosts_;
  Communicator host_;
  const int device_;
  DeviceCallOptions options_;
  std::mt19937_64 shared_, own_;  ///< What all ranks draw alike, and what each may choose for itself.
  std::vector<std::unique_ptr<TestStream>> streams_;
  std::vector<std::unique_ptr<DeviceArena>> arenas_;  ///< By Memory.
  std::vector<DeviceEvent> ends_;                     ///< By stream.
  std::unique_ptr<DeviceArena> spare_, factors_;
  std::size_t used_ = 0, next_factor_ = 0;
  std::vector<std::function<void()>> fetched_;        ///< See fetch().
  std::vector<std::function<std::string()>> checks_;  ///< To be made when all streams are through.
  std::uint64_t done_ = 0;
  DeviceCommunicator communicator_;  ///< Last: no memory is freed under its operations.
};

}  // namespace lockstep::internal
