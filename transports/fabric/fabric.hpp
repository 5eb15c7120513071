// The contract between links over a fabric and what moves their bytes: a UCX worker, or verbs queue pairs.
//
// A fabric knows two ways: small messages, which arrive in order in slots posted ahead, and transfers, which
// go from the sender's memory straight into memory that the receiver opened for them (a landing). What the
// messages mean, how many may be under way, and when a landing is opened is the link's affair
// (fabric_link.hpp). As transports, fabrics never block, own no thread and read no clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "lib/base/status.hpp"
#include "transports/fabric/limits.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal {

/// Where the payloads of calls and messages lie. What links say among themselves, and the reasons of revokes,
/// are always this process's own.
enum class PayloadMemory : std::uint8_t {
  host,         ///< In memory of this process: small ones are copied.
  cuda,         ///< On a GPU, where only the fabric reaches them.
  host_device,  ///< In what stands in for a GPU: host memory that is treated as if it were on one.
};

/// Memory of a receiver that is open for one transfer, as its sender must know it.
struct Landing {
  std::uint64_t number = 0;   ///< Of this wire's landings, from 0.
  std::uint64_t bytes = 0;    ///< To be filled whole.
  std::uint64_t address = 0;  ///< For fabrics that write by address.
  std::uint64_t key_bytes = 0;
  std::array<std::byte, kMostKeyBytes> key;  ///< The first key_bytes: the fabric's own, for the same.
};

/// A small message that arrived. Its bytes start at a multiple of 64 and stay until it is released.
struct Arrival {
  std::span<const std::byte> bytes;
  std::uint32_t slot = 0;
};

/// The way to one peer, for one channel. Errors are final, and told by failure() too.
class Wire {
 public:
  virtual ~Wire() = default;

  /// Sends head and body as one message of at most kSlotBytes. Both are copied. False: no room now.
  virtual Result<bool> send(std::span<const std::byte> head, std::span<const std::byte> body) = 0;
  /// The next message that arrived, in the order in which they were sent. To be released, in any order.
  virtual std::optional<Arrival> next() = 0;
  virtual void release(const Arrival& arrival) = 0;

  /// Opens `memory` to one transfer. What is told to the peer fills `landing`. With `may_take_back`, and
  /// where the fabric takes back, it can be closed again; without, it is opened in the fastest way.
  virtual Status open_landing(std::span<std::byte> memory, bool may_take_back, Landing& landing) = 0;
  /// Closes up to `most` of the landings that can be and that nothing has begun to fill, from the youngest
  /// on, and returns how many those were: their memory is not touched any more. What the peer sends to them
  /// goes nowhere. No landing is opened after it.
  virtual std::size_t take_back([[maybe_unused]] std::size_t most) { return 0; }
  /// Of the landings opened, in order, how many are filled: their memory is not touched any more.
  virtual std::uint64_t landed() = 0;
  /// Starts to fill `landing` of the peer from `memory`. False: no room now.
  virtual Result<bool> fill(const Landing& landing, std::span<const std::byte> memory) = 0;
  /// Of the transfers started, in order, how many are over: their memory may be reused.
  virtual std::uint64_t filled() = 0;

  /// Ends the wire here and now: afterwards no memory of landings and transfers is touched any more, whatever
  /// the peer does. failure() tells `why`.
  virtual void cut(Status why) = 0;
  /// Why the wire is dead; ok while it is not. What arrived before can still be taken.
  virtual const Status& failure() const = 0;
  /// Some sends are not on their way yet: only further progress brings them there.
  virtual bool unfinished() = 0;
};

/// All wires of one communicator.
class Fabric {
 public:
  virtual ~Fabric() = default;
  virtual std::string_view name() const = 0;
  /// Null while the way to the peer is being made (asking starts that). Where the peer has left it may be a
  /// dead one, from which what had arrived can still be taken.
  virtual Result<std::unique_ptr<Wire>> wire(int peer, Channel channel) = 0;
  /// A peer that sent something over a channel for which wire() has made none yet, and has not failed.
  virtual std::optional<std::pair<int, Channel>> caller() = 0;

  /// Moves what can be moved. Whether anything was.
  virtual bool progress() = 0;
  /// Becomes readable when there may be progress, once arm() was called after the last progress().
  virtual int descriptor() const = 0;
  virtual void arm() = 0;
  /// Some peers' ways are being made, wanted here or there: only further progress finishes them.
  virtual bool connecting() { return false; }
  /// What tells of that, beside the descriptor; -1 where nothing does.
  virtual int connections() const { return -1; }
  /// Finds, in time, peers that have left and do not know whom to tell: their wires fail. Call it now and
  /// then while something is awaited; what it looks at costs system calls.
  virtual void look_for_leavers() {}
  /// Whether all that was sent has left for its peers; call progress() in between.
  virtual bool flushed() = 0;
  /// No more ways are made: lets go of what the job has for that. Those that are made stay.
  virtual void close() {}

  /// Memory of `bytes` for landings, aligned to 64; lives as long as the fabric.
  virtual Result<std::span<std::byte>> bounce_memory(std::size_t bytes) = 0;
  /// Whether landings in (and transfers from) this memory of the caller need no copy.
  virtual bool direct(const void* memory, std::size_t bytes) = 0;
  /// Whether what a peer sends arrives in one order, over whichever channel.
  virtual bool in_one_order() const { return false; }
  /// Whether Wire::take_back can close a landing.
  virtual bool takes_back() const { return false; }
};

}  // namespace lockstep::internal
