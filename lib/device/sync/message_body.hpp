// One block's part of a message call: one channel of one direction with one peer.
#pragma once

#include "lib/device/sync/copy_bytes.hpp"
#include "lib/device/sync/message_call.hpp"

namespace lockstep::internal::sync {

/// `Block`: first() is its first thread, which waits and tells for all; thread() of threads(); sync(), and
/// any(), which is true on all threads when it was on one. Every thread comes to the same calls.
template <class Block>
class MessageBody {
 public:
  static LOCKSTEP_BOTH void run(const MessageArguments& call, int index, Block block) {
    MessageBody body(call, call.list[index / call.channels], index % call.channels, block);
    body.list_.sends != 0 ? body.send() : body.receive();
  }

 private:
  LOCKSTEP_BOTH MessageBody(const MessageArguments& call, const MessageList& list, int channel, Block block)
      : call_(call), list_(list), peer_(list.peer), channel_(channel), block_(block), spin_(call.bounds) {}

  LOCKSTEP_BOTH void send() {
    std::uint32_t& counter = call_.counters->sent[peer_][channel_];
    const std::uint32_t before = counter;
    const std::uint32_t* const freed = word(call_.rank, peer_, 1);
    std::uint32_t sent = before;
    for (int m = list_.first; m < list_.first + list_.count; ++m) {
      const Message& message = call_.messages[m];
      for (std::uint64_t chunk = first(); chunk < chunks(message); chunk += stride()) {
        if (!until([&] { return sent - load_word(freed) < kMessageSlots; })) return;
        std::byte* const to = slot(peer_, call_.rank, sent);
        if (block_.first()) cuda::store_vector(to, head_of(message.bytes));
        copy(to + kMessageHead, message.buffer + chunk * payload(), bytes_of(message, chunk));
        block_.sync();
        ++sent;
        if (block_.first()) store_word(word(peer_, call_.rank, 0), sent);
      }
    }
    if (block_.first() && sent != before) counter = sent;
  }

  LOCKSTEP_BOTH void receive() {
    std::uint32_t& counter = call_.counters->taken[peer_][channel_];
    const std::uint32_t before = counter;
    const std::uint32_t* const told = word(call_.rank, peer_, 0);
    std::uint32_t taken = before;
    for (int m = list_.first; m < list_.first + list_.count; ++m) {
      const Message& message = call_.messages[m];
      for (std::uint64_t chunk = first(); chunk < chunks(message); chunk += stride()) {
        if (!until([&] { return static_cast<std::int32_t>(load_word(told) - taken) > 0; })) return;
        const std::byte* const from = slot(call_.rank, peer_, taken);
        const std::uint64_t sent = size_in(cuda::load_vector(from));
        if (sent != message.bytes) return differ(sent, message.bytes);
        copy(message.buffer + chunk * payload(), from + kMessageHead, bytes_of(message, chunk));
        block_.sync();
        ++taken;
        if (block_.first()) store_word(word(peer_, call_.rank, 1), taken);
      }
    }
    if (block_.first() && taken != before) counter = taken;
  }

  /// What the first thread sees all threads go by.
  template <typename Look>
  LOCKSTEP_BOTH bool until(Look look) {
    return block_.any(block_.first() && spin_.until(peer_, look));
  }

  LOCKSTEP_BOTH void differ(std::uint64_t sent, std::uint64_t expected) const {
    if (!block_.first() || !Report::is_first(call_.bounds.report)) return;
    call_.sizes->sent = sent;
    call_.sizes->expected = expected;
    store_word(call_.bounds.report, Report::make(Report::Why::sizes, peer_));
  }

  LOCKSTEP_BOTH void copy(std::byte* to, const std::byte* from, std::uint64_t bytes) const {
    copy_bytes(to, from, bytes, block_.thread(), block_.threads());
  }

  LOCKSTEP_BOTH static cuda::Vector head_of(std::uint64_t bytes) {
    return {{static_cast<std::uint32_t>(bytes), static_cast<std::uint32_t>(bytes >> 32), 0, 0}};
  }
  LOCKSTEP_BOTH static std::uint64_t size_in(const cuda::Vector& head) {
    return head.words[0] | std::uint64_t{head.words[1]} << 32;
  }

  LOCKSTEP_BOTH std::uint64_t payload() const { return call_.slot_bytes - kMessageHead; }
  LOCKSTEP_BOTH std::uint64_t chunks(const Message& message) const {
    return message_chunks(message.bytes, call_.slot_bytes);
  }
  LOCKSTEP_BOTH std::uint64_t bytes_of(const Message& message, std::uint64_t chunk) const {
    const std::uint64_t rest = message.bytes - chunk * payload();
    return rest < payload() ? rest : payload();
  }
  LOCKSTEP_BOTH std::uint64_t first() const { return static_cast<std::uint64_t>(channel_); }
  /// Of all channels, also where this call needs fewer: the peer's may need more.
  LOCKSTEP_BOTH std::uint64_t stride() const {
    return static_cast<std::uint64_t>(message_channels(call_.world));
  }

  /// In `owner`'s area, written by `writer`: 0, how many chunks are there for the owner; 1, how many of the
  /// owner's the writer has taken.
  LOCKSTEP_BOTH std::uint32_t* word(int owner, int writer, int which) const {
    const int place = (writer * 2 + which) * message_channels(call_.world) + channel_;
    return reinterpret_cast<std::uint32_t*>(call_.areas[owner] +
                                            static_cast<std::uint64_t>(place) * kMessageWord);
  }
  LOCKSTEP_BOTH std::byte* slot(int owner, int writer, std::uint32_t chunk) const {
    const auto ring = static_cast<std::uint64_t>(writer * message_channels(call_.world) + channel_);
    return call_.areas[owner] + message_word_bytes(call_.world) +
           (ring * kMessageSlots + chunk % kMessageSlots) * call_.slot_bytes;
  }

  const MessageArguments& call_;
  const MessageList& list_;
  const int peer_, channel_;
  const Block block_;
  Spin spin_;
};

}  // namespace lockstep::internal::sync
