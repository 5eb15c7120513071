// The typed part of a packet call: what is scaled, and what is reduced.
#pragma once

#include "lib/device/sync/packet_thread.hpp"
#include "lib/reduce/element.hpp"

namespace lockstep::internal::sync {

template <class Element, class Op>
class PacketBody : PacketThread {
  using Stored = typename Element::Stored;
  using Value = typename Element::Value;
  static constexpr std::size_t kLanes = kPacketPayload / sizeof(Stored);
  static constexpr bool kFinishes = std::is_same_v<Op, element::Sum> && std::is_arithmetic_v<Value>;
  /// Senders whose packets are asked for at once, since each answer takes its time. Elements of a byte have
  /// enough to do for one.
  static constexpr int kAhead = sizeof(Stored) > 1 ? 4 : 1;

 public:
  /// The part of `thread` out of `threads` in the call that ends `epoch`.
  static LOCKSTEP_BOTH void run(const PacketArguments& call, std::uint64_t epoch, std::size_t thread,
                                std::size_t threads) {
    PacketBody body(call, epoch, thread, threads);
    body.send_tokens();
    if constexpr (kFinishes) {
      call.scaled ? body.send_scaled() : body.send_blocks();
    } else {
      body.send_blocks();
    }
    if (call.reduce.bytes != 0) body.reduce();
    body.keep();
    body.place();
    body.take_tokens();
  }

 private:
  using PacketThread::PacketThread;

  LOCKSTEP_BOTH void send_scaled() {
    for (int k = 1; k < call_.world; ++k) {
      const int peer = (call_.rank + k) % call_.world;
      Packet* const to = slot(peer, 0, call_.rank);
      for (std::size_t u = thread_; u < packets(call_.send[peer]); u += threads_)
        send_packet(to + u, scaled(call_, own(call_.send[peer], u)), flags_);
    }
  }

  LOCKSTEP_BOTH void reduce() {
    const Region& region = call_.reduce;
    for (std::size_t u = thread_; u < packets(region); u += threads_) {
      const cuda::Vector result = reduced(u);
      if (spin_.over()) return;
      store(call_.output + call_.reduce_to + u * kPacketPayload, result, bytes_of(region, u));
      for (int k = 1; call_.forward && k < call_.world; ++k) {
        const int peer = (call_.rank + k) % call_.world;
        send_packet(slot(peer, 1, call_.rank) + u, result, flags_);
      }
    }
  }

  /// Packet u of my part, all ranks' in rank order.
  LOCKSTEP_BOTH cuda::Vector reduced(std::size_t u) {
    Value values[kLanes]{};
    for (int first = 0; first < call_.world; first += kAhead) {
      Packet seen[kAhead];
      LOCKSTEP_UNROLL
      for (int k = 0; k < kAhead; ++k)
        if (comes_from_afar(first + k)) seen[k] = load_packet(slot(call_.rank, 0, first + k) + u);
      LOCKSTEP_UNROLL
      for (int k = 0; k < kAhead; ++k) {
        const int sender = first + k;
        if (sender >= call_.world) break;
        const cuda::Vector next =
            comes_from_afar(sender) ? take(slot(call_.rank, 0, sender) + u, sender, seen[k]) : mine(u);
        combine(values, next, sender == 0);
      }
    }
    return finished(values);
  }
  LOCKSTEP_BOTH bool comes_from_afar(int sender) const {
    return sender < call_.world && sender != call_.rank;
  }

  LOCKSTEP_BOTH cuda::Vector mine(std::size_t u) const {
    const cuda::Vector vector = own(call_.reduce, u);
    if constexpr (kFinishes) {
      if (call_.scaled) return scaled(call_, vector);
    }
    return vector;
  }

  static LOCKSTEP_BOTH void combine(Value (&values)[kLanes], const cuda::Vector& next, bool first) {
    Stored lanes[kLanes];
    std::memcpy(lanes, &next, sizeof next);
    LOCKSTEP_UNROLL
    for (std::size_t k = 0; k < kLanes; ++k) {
      const Value value = Element::load(lanes[k]);
      values[k] = first ? value : Op::apply(values[k], value);
    }
  }

  LOCKSTEP_BOTH cuda::Vector finished(const Value (&values)[kLanes]) const {
    Stored lanes[kLanes];
    LOCKSTEP_UNROLL
    for (std::size_t k = 0; k < kLanes; ++k) {
      Value value = values[k];
      if constexpr (kFinishes) {
        if (call_.divisor != 1) value = element::divided(value, call_.divisor);
      }
      lanes[k] = Element::store(value);
    }
    cuda::Vector result;
    std::memcpy(&result, lanes, sizeof result);
    return result;
  }

  /// Rounded to its type, as if it had been scaled beforehand.
  static LOCKSTEP_SYNC_APART cuda::Vector scaled(const PacketArguments& call, cuda::Vector vector) {
    const auto* const there = static_cast<const Stored*>(call.device_factor);
    const Value factor = there == nullptr ? element::factor_of<Value>(call.factor) : Element::load(*there);
    Stored lanes[kLanes];
    std::memcpy(lanes, &vector, sizeof vector);
    for (std::size_t k = 0; k < kLanes; ++k)
      lanes[k] = Element::store(element::Prod::apply(Element::load(lanes[k]), factor));
    std::memcpy(&vector, lanes, sizeof vector);
    return vector;
  }
};

}  // namespace lockstep::internal::sync
