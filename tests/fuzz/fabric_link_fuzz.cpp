// Links over UCX and verbs: notes, landings and frames of a peer that says anything.
#include <memory>
#include <vector>

#include "tests/fuzz/input.hpp"
#include "transports/fabric/fabric_driver.hpp"
#include "transports/fabric/fabric_link.hpp"

namespace lockstep::internal::fuzz {
namespace {

/// What the peer says comes from the input, as slots do: of their alignment, and no more than there are.
class HostileWire final : public Wire {
 public:
  Result<bool> send(std::span<const std::byte> head, std::span<const std::byte> body) override {
    require(head.size() + body.size() <= kSlotBytes);
    return takes;
  }
  std::optional<Arrival> next() override {
    if (said.empty()) return std::nullopt;
    const auto arrival = said.front();
    said.erase(said.begin());
    return arrival;
  }
  void release(const Arrival& arrival) override {
    require(slots[arrival.slot] != nullptr);
    slots[arrival.slot].reset();
  }
  Status open_landing(std::span<std::byte> memory, bool, Landing& landing) override {
    landing.number = opened.size();
    landing.bytes = memory.size();
    landing.key_bytes = 0;
    opened.push_back(memory);
    return {};
  }
  std::size_t take_back(std::size_t) override { return 0; }
  std::uint64_t landed() override { return landings; }
  Result<bool> fill(const Landing& landing, std::span<const std::byte> memory) override {
    require(landing.bytes == memory.size());
    ++fills;
    return true;
  }
  std::uint64_t filled() override { return fills; }
  void cut(Status why) override { failure_ = std::move(why); }
  const Status& failure() const override { return failure_; }
  bool unfinished() override { return false; }

  void say(std::span<const std::byte> bytes) {
    const auto free = std::find(slots.begin(), slots.end(), nullptr);
    if (free == slots.end() || bytes.size() > kSlotBytes) return;
    free->reset(new (std::align_val_t{64}) std::byte[bytes.size()]);
    std::copy(bytes.begin(), bytes.end(), free->get());
    said.push_back({{free->get(), bytes.size()}, static_cast<std::uint32_t>(free - slots.begin())});
  }
  /// A transfer into the oldest landing that is open.
  void land() {
    if (landings == opened.size()) return;
    std::fill(opened[landings].begin(), opened[landings].end(), std::byte{7});
    ++landings;
  }
  bool takes = true;

 private:
  struct Free {
    void operator()(std::byte* memory) const { operator delete[](memory, std::align_val_t{64}); }
  };
  std::array<std::unique_ptr<std::byte, Free>, kLinkSlots> slots;
  std::vector<Arrival> said;
  std::vector<std::span<std::byte>> opened;
  std::uint64_t landings = 0, fills = 0;
  Status failure_;
};

class PlainFabric final : public Fabric {
 public:
  explicit PlainFabric(bool direct)
      : direct_(direct), bounce_(new (std::align_val_t{64}) std::byte[kLandings * kBounceLandingBytes]) {}
  ~PlainFabric() override { operator delete[](bounce_, std::align_val_t{64}); }
  std::string_view name() const override { return "plain"; }
  Result<std::unique_ptr<Wire>> wire(int, Channel) override { return std::unique_ptr<Wire>(); }
  std::optional<std::pair<int, Channel>> caller() override { return std::nullopt; }
  bool progress() override { return false; }
  int descriptor() const override { return -1; }
  void arm() override {}
  bool flushed() override { return true; }
  Result<std::span<std::byte>> bounce_memory(std::size_t bytes) override { return std::span(bounce_, bytes); }
  bool direct(const void*, std::size_t) override { return direct_; }
  bool takes_back() const override { return direct_; }

 private:
  const bool direct_;
  std::byte* const bounce_;
};

class Ends {
 public:
  explicit Ends(Input& input)
      : input_(input), driver_(std::move(*FabricDriver::make(std::make_unique<PlainFabric>(input.flag())))) {
    auto wire = std::make_unique<HostileWire>();
    wire_ = wire.get();
    link_ = std::make_unique<FabricLink>(*driver_, std::move(wire), 1,
                                         input.flag() ? PayloadMemory::host : PayloadMemory::host_device);
  }
  void act() {
    switch (input_.below(8)) {
      case 0:
        return wire_->say(input_.bytes(input_.below(100)));
      case 1:
      case 2:
        return say_note();
      case 3:
        return wire_->land();
      case 4:
        return send();
      case 5:
        if (expected_.size() < 8 && header_ == nullptr) {
          expected_.emplace_back(kPiecewiseBytes + 1 + input_.number() % 10'000);
          link_->expect(expected_.back());
        }
        return;
      default:
        return receive();
    }
  }

 private:
  void say_note() {
    std::vector<std::byte> bytes;
    const auto add = [&](const auto& value) {
      const auto more = std::as_bytes(std::span(&value, 1));
      bytes.insert(bytes.end(), more.begin(), more.end());
    };
    const auto kind = static_cast<std::uint8_t>(input_.below(6));
    const auto credits = static_cast<std::uint8_t>(input_.below(20) == 1 ? input_.below(256) : 0);
    add(kind), add(credits), add(std::uint16_t{}), add(std::uint32_t{}), add(std::uint64_t{});
    if (kind == 1) {
      FrameHeader header;
      header.kind = FrameKind{static_cast<std::uint8_t>(input_.below(7))};
      header.bytes =
          input_.flag() && !expected_.empty() ? expected_.back().size() : input_.number() % 200'000;
      if (input_.flag()) add(header);
      bytes.resize(bytes.size() + std::min<std::size_t>(input_.number() % 3000, kSlotBytes - bytes.size()),
                   std::byte{1});
    } else if (kind == 2) {
      Landing landing{};
      landing.bytes = input_.number();
      landing.key_bytes = input_.below(4) * 8;
      add(landing);
      bytes.resize(bytes.size() - landing.key.size() + landing.key_bytes);
    }
    const auto size = static_cast<std::uint32_t>(bytes.size() - 16);
    std::memcpy(bytes.data() + 4, &size, sizeof size);
    wire_->say(bytes);
  }

  void send() {
    if (sent_.empty()) {
      sent_.resize(1 + (input_.flag() ? input_.number() % 100 : input_.number() % 200'000));
      out_ = {};
      out_.kind = FrameKind::data;
      out_.bytes = sent_.size();
      cursor_ = {};
    }
    const auto done = link_->send(out_, sent_, cursor_);
    require(cursor_.payload_bytes <= sent_.size());
    if (done.ok() && done.value()) sent_.clear();
  }

  void receive() {
    if (header_ == nullptr) {
      const auto head = link_->peek();
      if (!head.ok() || head.value() == nullptr) return;
      header_ = head.value();
      left_ = header_->bytes;
      place_.assign(std::min<std::uint64_t>(left_, 200'000), std::byte{});
      expected_here_ = {};
      if (!expected_.empty() && left_ == expected_.front().size()) expected_here_ = expected_.front();
    }
    if (left_ > 0 && expected_here_.empty() && input_.flag()) {
      const auto lent = link_->borrow(4, 1 << input_.below(18));
      if (!lent.ok()) return;
      require(lent.value().size() <= left_ && lent.value().size() % 4 == 0);
      require(reinterpret_cast<std::uintptr_t>(lent.value().data()) % 4 == 0);
      left_ -= lent.value().size();
      link_->release(lent.value().size());
    } else if (left_ > 0) {
      const std::span<std::byte> into =
          expected_here_.empty() ? std::span(place_) : expected_here_.last(left_);
      const auto got = link_->read(into.first(std::min<std::uint64_t>(into.size(), left_)));
      if (!got.ok()) return;
      require(got.value() <= left_);
      left_ -= got.value();
      if (expected_here_.empty()) place_.assign(std::min<std::uint64_t>(left_, 200'000), std::byte{});
    }
    if (left_ > 0) return;
    link_->pop();
    header_ = nullptr;
  }

  Input& input_;
  std::unique_ptr<FabricDriver> driver_;
  HostileWire* wire_ = nullptr;
  std::vector<std::vector<std::byte>> expected_;
  std::span<std::byte> expected_here_;
  std::vector<std::byte> sent_, place_;
  FrameHeader out_;
  SendCursor cursor_;
  const FrameHeader* header_ = nullptr;
  std::uint64_t left_ = 0;
  std::unique_ptr<FabricLink> link_;
};

}  // namespace

void run(Input input) {
  Ends ends(input);
  for (int actions = 0; !input.empty() && actions < 200; ++actions) ends.act();
}

}  // namespace lockstep::internal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lockstep::internal::fuzz::run({data, size});
  return 0;
}
