// One thread's part of a packet call, but for what depends on the type of the elements (packet_body.hpp).
#pragma once

#include "lib/device/sync/packet_call.hpp"

/// What is seldom run is not inlined into kernels, of which there are many.
#ifdef __CUDACC__
#define LOCKSTEP_SYNC_APART inline __host__ __device__ __noinline__
#else
#define LOCKSTEP_SYNC_APART inline
#endif

namespace lockstep::internal::sync {

/// Of all or the last bytes of a packet, in accesses as wide as the place allows.
LOCKSTEP_SYNC_APART cuda::Vector load_part(const std::byte* from, std::size_t bytes) {
  cuda::Vector vector{};
  if ((reinterpret_cast<std::uintptr_t>(from) | bytes) % sizeof(std::uint32_t) == 0) {
    for (std::size_t w = 0; w < bytes / sizeof(std::uint32_t); ++w)
      vector.words[w] = reinterpret_cast<const std::uint32_t*>(from)[w];
  } else {
    std::memcpy(&vector, from, bytes);
  }
  return vector;
}
LOCKSTEP_SYNC_APART void store_part(std::byte* to, const cuda::Vector& vector, std::size_t bytes) {
  if ((reinterpret_cast<std::uintptr_t>(to) | bytes) % sizeof(std::uint32_t) == 0) {
    for (std::size_t w = 0; w < bytes / sizeof(std::uint32_t); ++w)
      reinterpret_cast<std::uint32_t*>(to)[w] = vector.words[w];
  } else {
    std::memcpy(to, &vector, bytes);
  }
}

class PacketThread {
 public:
  LOCKSTEP_BOTH PacketThread(const PacketArguments& call, std::uint64_t epoch, std::size_t thread,
                             std::size_t threads)
      : call_(call),
        set_(static_cast<int>(epoch & 1)),
        flags_(Flags::of(epoch)),
        thread_(thread),
        threads_(threads),
        spin_(call.bounds) {}

  LOCKSTEP_BOTH void send_tokens() {
    for (int peer = 0; peer < call_.world; ++peer)
      if (peer != call_.rank && is_mine(peer)) send_packet(token(peer, call_.rank), {}, flags_);
  }
  LOCKSTEP_BOTH void take_tokens() {
    for (int peer = 0; peer < call_.world; ++peer)
      if (peer != call_.rank && is_mine(peer)) static_cast<void>(take(token(call_.rank, peer), peer));
  }

  /// Each rank begins with another receiver.
  LOCKSTEP_BOTH void send_blocks() {
    for (int k = 1; k < call_.world; ++k) {
      const int peer = (call_.rank + k) % call_.world;
      Packet* const to = slot(peer, 0, call_.rank);
      for (std::size_t u = thread_; u < packets(call_.send[peer]); u += threads_)
        send_packet(to + u, own(call_.send[peer], u), flags_);
    }
  }

  LOCKSTEP_BOTH void keep() {
    const std::byte* const from = call_.input + call_.keep.offset;
    std::byte* const to = call_.output + call_.keep_to;
    for (std::size_t u = thread_; from != to && u < packets(call_.keep); u += threads_)
      store(to + u * kPacketPayload, own(call_.keep, u), bytes_of(call_.keep, u));
  }

  LOCKSTEP_BOTH void place() {
    for (int k = 1; k < call_.world; ++k) {
      const int peer = (call_.rank + k) % call_.world;
      const Region& region = call_.place[peer];
      const Packet* const from = slot(call_.rank, call_.forward ? 1 : 0, peer);
      for (std::size_t u = thread_; u < packets(region); u += threads_) {
        const cuda::Vector block = take(from + u, peer);
        if (spin_.over()) return;
        store(call_.output + region.offset + u * kPacketPayload, block, bytes_of(region, u));
      }
    }
  }

 protected:
  LOCKSTEP_BOTH Packet* token(int receiver, int sender) const {
    return reinterpret_cast<Packet*>(call_.inboxes[receiver]) + set_ * call_.world + sender;
  }
  LOCKSTEP_BOTH Packet* slot(int receiver, int which, int sender) const {
    const auto index = static_cast<std::uint64_t>((set_ * 2 + which) * call_.world + sender);
    return reinterpret_cast<Packet*>(call_.inboxes[receiver] + token_bytes(call_.world) +
                                     index * call_.slot_bytes);
  }
  static LOCKSTEP_BOTH std::size_t packets(const Region& region) {
    return (region.bytes + kPacketPayload - 1) / kPacketPayload;
  }
  static LOCKSTEP_BOTH std::size_t bytes_of(const Region& region, std::size_t u) {
    const std::uint64_t rest = region.bytes - u * kPacketPayload;
    return rest < kPacketPayload ? rest : kPacketPayload;
  }
  /// Both sides of a token have one thread.
  LOCKSTEP_BOTH bool is_mine(int peer) const {
    return static_cast<std::size_t>(call_.rank + peer) % threads_ == thread_;
  }

  static LOCKSTEP_BOTH bool is_whole(const void* at, std::size_t bytes) {
    return bytes == kPacketPayload && reinterpret_cast<std::uintptr_t>(at) % kPacketPayload == 0;
  }
  LOCKSTEP_BOTH cuda::Vector own(const Region& region, std::size_t u) const {
    const std::byte* const from = call_.input + region.offset + u * kPacketPayload;
    const std::size_t bytes = bytes_of(region, u);
    return is_whole(from, bytes) ? cuda::load_vector(from) : load_part(from, bytes);
  }
  static LOCKSTEP_BOTH void store(std::byte* to, const cuda::Vector& vector, std::size_t bytes) {
    is_whole(to, bytes) ? cuda::store_vector(to, vector) : store_part(to, vector, bytes);
  }

  /// What arrives there from `sender`; nothing of value once the spin is over.
  LOCKSTEP_BOTH cuda::Vector take(const Packet* from, int sender) {
    return take(from, sender, load_packet(from));
  }
  LOCKSTEP_BOTH cuda::Vector take(const Packet* from, int sender, const Packet& seen) {
    return payload_of(has_arrived(seen, flags_) ? seen : wait_for(from, sender));
  }
  LOCKSTEP_BOTH Packet wait_for(const Packet* from, int sender) {
    Packet seen{};
    spin_.until(sender, [&] {
      seen = load_packet(from);
      return has_arrived(seen, flags_);
    });
    return seen;
  }

  const PacketArguments& call_;
  const int set_;
  const Flags flags_;
  const std::size_t thread_, threads_;
  Spin spin_;
};

}  // namespace lockstep::internal::sync
