// Links that hand out what a test puts into them, and keep what is sent.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "collectives/engine/limits.hpp"
#include "transports/transport.hpp"

namespace lockstep::internal::testing {

inline const Status kEnded(ErrorCode::peer_lost, "it closed the connection", 1);

inline FrameHeader frame(FrameKind kind, std::uint64_t sequence = 0, std::size_t bytes = 0) {
  FrameHeader header;
  header.kind = kind;
  header.sequence = sequence;
  header.bytes = bytes;
  return header;
}

/// Every byte of a payload is 7, but of a head that has a text.
class ScriptedLink final : public Link {
 public:
  Result<bool> send(const FrameHeader& header, std::span<const std::byte> payload,
                    SendCursor& cursor) override {
    if (!sends) return kEnded;
    if (cursor.header_bytes == 0 && payload.size() > room) return false;
    if (cursor.header_bytes == 0) sent.push_back(header);
    cursor.header_bytes = sizeof header;
    if (ends_sends) cursor.payload_bytes = payload.size();
    return ends_sends;
  }
  bool may_begin() const override { return begins; }
  Result<const FrameHeader*> peek(const Awaited*) override {
    if (const auto meanwhile = std::exchange(in_next_peek, nullptr)) meanwhile();
    if (!heads.empty()) return &heads.front();
    if (ended) return ending;
    return nullptr;
  }
  Result<std::size_t> read(std::span<std::byte> into) override {
    if (!here && ended) return kEnded;
    if (!here) return std::size_t{0};
    into = into.first(std::min(into.size(), come));
    come -= into.size();
    const std::size_t told = std::min(text.size(), into.size());
    std::memcpy(into.data(), text.data(), told);
    text.erase(0, told);
    std::memset(into.data() + told, 7, into.size() - told);
    return into.size();
  }
  Result<std::span<const std::byte>> borrow(std::size_t, std::size_t) override {
    return std::span<const std::byte>();
  }
  void release(std::size_t) override {}
  void expect(std::span<std::byte> place) override { expected.push_back(place); }
  void pop() override { heads.pop_front(); }
  pollfd poll_entry() const override { return {-1, 0, 0}; }
  std::uint64_t bytes_sent() const override { return 0; }
  bool reaches_peer() const override { return reaches; }

  bool sends = true, ends_sends = true, begins = false;
  std::size_t room = 2 * kEagerBytes;
  bool here = true;                                            // Payloads,
  std::size_t come = std::numeric_limits<std::size_t>::max();  // and so many bytes of them.
  bool ended = false, reaches = true;
  Status ending = kEnded;
  std::function<void()> in_next_peek;
  std::string text;
  std::deque<FrameHeader> heads, sent;
  std::vector<std::span<std::byte>> expected;
};

/// Links are there once a test has named them; others are never set up, or cannot be.
class ScriptedTransport final : public Transport {
 public:
  std::string_view name() const override { return "script"; }
  Result<Link*> link(int peer, Channel channel) override {
    if (!reaches) return kEnded;
    Link* const known = existing_link(peer, channel);
    if (known == nullptr) wanted.insert({peer, channel});
    return known;
  }
  Status service() override {
    unasked.clear();
    return {};
  }
  Link* existing_link(int peer, Channel channel) override {
    const auto found = unasked.contains({peer, channel}) ? links_.end() : links_.find({peer, channel});
    return found != links_.end() ? &found->second : nullptr;
  }
  bool link_is_under_way(int peer, Channel channel) override { return under_way.contains({peer, channel}); }
  void append_poll_entries(std::vector<pollfd>&) override {}
  Domain* domain() override { return memory.get(); }
  void close() override {}
  bool unfinished() override { return owes; }
  bool withdraw(int peer, bool force) override {
    if (force) forced.insert(peer);
    return force || ++withdrawals > held;
  }
  ScriptedLink& at(int peer, Channel channel) { return links_[{peer, channel}]; }

  bool reaches = true;
  bool owes = false;  // Of messages that have ended, something to a peer.
  std::set<std::pair<int, Channel>> wanted, under_way;
  std::set<std::pair<int, Channel>> unasked;  // Of the links those that are there from the next service() on.
  std::set<int> forced;                       // Whose links were withdrawn by force.
  int held = 0;                               // So many withdrawals without force are in vain.
  int withdrawals = 0;
  std::unique_ptr<Domain> memory;  // That the ranks share, if they do.

 private:
  std::map<std::pair<int, Channel>, ScriptedLink> links_;
};

}  // namespace lockstep::internal::testing
