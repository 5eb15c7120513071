// Random messages among ranks on devices: one, or a batch in which each rank names them in an order of its
// own.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tests/device/communicator/device_call.hpp"

namespace lockstep::internal {

/// What all ranks know.
class RandomMessages {
 public:
  struct One {
    int from, to;
    DataType type;
    std::size_t count;
    std::uint64_t seed;
    std::size_t bytes() const { return count * size_of(type); }
  };

  RandomMessages(std::mt19937_64& random, int world);

  const std::vector<One>& all() const { return all_; }
  /// Without a batch.
  bool is_single() const { return single_; }
  /// Memory for the buffers of a rank.
  std::size_t bytes() const;

 private:
  bool single_;
  std::vector<One> all_;
};

/// One rank's buffers, each among canaries.
class MessageBuffers {
 public:
  /// From `at` of the arena on.
  MessageBuffers(const RandomMessages& messages, int rank, std::size_t at, DeviceArena& arena);

  /// Uploads, sends and receives. Each message takes one of the streams, and download() the same.
  void start(DeviceCommunicator& communicator, const std::vector<Stream>& streams,
             const DeviceCallOptions& options, std::mt19937_64& random);
  void download();
  /// When the streams are through: empty, or what is wrong.
  std::string check() const;

 private:
  struct Buffer {
    const RandomMessages::One* message;
    bool is_send;
    std::span<std::byte> memory;  ///< Of the host's copy, canaries included.
    std::span<std::byte> data;
    Stream stream;
  };
  std::vector<Buffer*> own_order(std::mt19937_64& random);
  void call(DeviceCommunicator& communicator, DeviceBatch* batch, const Buffer& buffer, bool as_bytes,
            const DeviceCallOptions& options);

  const RandomMessages messages_;
  DeviceArena& arena_;
  std::vector<Buffer> buffers_;
};

}  // namespace lockstep::internal
