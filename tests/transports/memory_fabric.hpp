// A fabric in memory: two wires that do all at once, and say when a link goes beyond what it may.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "transports/fabric/fabric_driver.hpp"
#include "transports/fabric/fabric_link.hpp"

namespace lockstep::internal::testing {

struct alignas(64) MemorySlot {
  std::byte bytes[kSlotBytes];
  std::size_t size = 0;
};

/// One end; `peer` is the other one. Messages wait in the receiver's slots, of which there are kLinkSlots.
class MemoryWire final : public Wire {
 public:
  MemoryWire* peer = nullptr;
  bool fills = true;  ///< False: transfers begin, and do not end.
  bool tells = true;  ///< False: nobody hears yet that those that go on from here have ended.
  bool takes = true;  ///< False: there is no room for a message.

  Result<bool> send(std::span<const std::byte> head, std::span<const std::byte> body) override {
    if (!failure_.ok()) return failure_;
    if (!takes) return false;
    EXPECT_LE(head.size() + body.size(), kSlotBytes);
    EXPECT_LT(peer->taken_.size(), kLinkSlots) << "more under way than the peer has slots for";
    auto& slot = *(peer->taken_[peer->next_] = std::make_unique<MemorySlot>());
    peer->arrived_.push_back(peer->next_++);
    const auto end = std::copy(head.begin(), head.end(), slot.bytes);
    std::copy(body.begin(), body.end(), end);
    slot.size = head.size() + body.size();
    return true;
  }
  std::optional<Arrival> next() override {
    if (arrived_.empty()) return std::nullopt;
    const std::uint32_t number = arrived_.front();
    arrived_.pop_front();
    return Arrival{{taken_[number]->bytes, taken_[number]->size}, number};
  }
  void release(const Arrival& arrival) override { EXPECT_EQ(taken_.erase(arrival.slot), 1u); }

  Status open_landing(std::span<std::byte> memory, bool may_take_back, Landing& landing) override {
    landing.number = landings_.size();
    landing.bytes = memory.size();
    landing.key_bytes = 0;
    landings_.push_back({memory, may_take_back});
    EXPECT_LE(landings_.size() - landed(), kLandings);
    return {};
  }
  std::size_t take_back(std::size_t most) override {
    std::size_t closed = 0;
    for (; closed < most && !landings_.empty(); ++closed) {
      if (!landings_.back().may_take_back || landings_.back().begun) break;
      landings_.pop_back();
    }
    return closed;
  }
  std::uint64_t landed() override {
    std::uint64_t count = 0;
    while (count < landings_.size() && landings_[count].filled) ++count;
    return count;
  }
  Result<bool> fill(const Landing& landing, std::span<const std::byte> memory) override {
    ++begun_;
    if (landing.number >= peer->landings_.size()) return true;  // Taken back.
    Opened& there = peer->landings_[landing.number];
    EXPECT_EQ(there.memory.size(), memory.size());
    there.begun = true;
    if (!fills) return true;
    std::memcpy(there.memory.data(), memory.data(), memory.size());
    there.filled = true;
    ++filled_;
    return true;
  }
  std::uint64_t filled() override {
    if (tells) told_ = filled_;
    return told_;
  }

  void cut(Status why) override { failure_ = std::move(why); }
  const Status& failure() const override { return failure_; }
  bool unfinished() override { return false; }

 private:
  struct Opened {
    std::span<std::byte> memory;
    bool may_take_back = false, begun = false, filled = false;
  };
  std::map<std::uint32_t, std::unique_ptr<MemorySlot>> taken_;  // By number, until released.
  std::deque<std::uint32_t> arrived_;
  std::uint32_t next_ = 0;
  std::vector<Opened> landings_;
  std::uint64_t begun_ = 0, filled_ = 0, told_ = 0;
  Status failure_;
};

class MemoryFabric final : public Fabric {
 public:
  bool moves = false;        ///< What the next progress() says.
  bool keeps_order = false;  ///< Over all links.

  explicit MemoryFabric(bool is_direct) : direct_(is_direct) {}
  std::string_view name() const override { return "memory"; }
  Result<std::unique_ptr<Wire>> wire(int, Channel) override { return std::unique_ptr<Wire>(); }
  std::optional<std::pair<int, Channel>> caller() override { return std::nullopt; }
  bool progress() override { return std::exchange(moves, false); }
  int descriptor() const override { return -1; }
  void arm() override {}
  bool flushed() override { return true; }
  Result<std::span<std::byte>> bounce_memory(std::size_t bytes) override {
    lent_.emplace_back(new (std::align_val_t{64}) std::byte[bytes]);
    return std::span(lent_.back().get(), bytes);
  }
  bool direct(const void*, std::size_t) override { return direct_; }
  bool takes_back() const override { return direct_; }
  bool in_one_order() const override { return keeps_order; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { operator delete[](memory, std::align_val_t{64}); }
  };
  const bool direct_;
  std::vector<std::unique_ptr<std::byte, Free>> lent_;
};

/// Two ends of a link over such a fabric, which writes straight into the callers' memory, or does not. a's
/// peer is rank 1, b's is rank 0.
struct FabricPair {
  explicit FabricPair(bool direct = true) : FabricPair(std::make_unique<MemoryFabric>(direct)) {}
  explicit FabricPair(std::unique_ptr<MemoryFabric> made)
      : fabric(made.get()), driver(std::move(*FabricDriver::make(std::move(made)))) {
    auto to_b = std::make_unique<MemoryWire>(), to_a = std::make_unique<MemoryWire>();
    wire_a = to_b.get(), wire_b = to_a.get();
    wire_a->peer = wire_b, wire_b->peer = wire_a;
    a = std::make_unique<FabricLink>(*driver, std::move(to_b), 1, PayloadMemory::host);
    b = std::make_unique<FabricLink>(*driver, std::move(to_a), 0, PayloadMemory::host);
  }
  MemoryFabric* const fabric;
  std::unique_ptr<FabricDriver> driver;
  MemoryWire *wire_a, *wire_b;
  std::unique_ptr<FabricLink> a, b;
};

}  // namespace lockstep::internal::testing
