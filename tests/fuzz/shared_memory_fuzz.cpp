// What a peer leaves in shared memory that has gone wrong: its flags, offers, records and reasons, and the
// counters of rings. Calls end, and no memory is touched that is nobody's.
#include <memory>
#include <optional>
#include <vector>

#include "collectives/engine/call_identity.hpp"
#include "collectives/select/names.hpp"
#include "tests/engine/scripted_links.hpp"
#include "tests/fuzz/hostile_rank.hpp"
#include "transports/shm/shm_ring.hpp"

// In place of the system's: nobody else is there to go on meanwhile.
extern "C" int sched_yield() noexcept { return 0; }

namespace lockstep::internal::fuzz {
namespace {

constexpr std::size_t kSegment = 1 << 20;

/// Kept from run to run but for the controls.
struct Common {
  MemberControl* mine = nullptr;
  MemberControl* theirs = nullptr;
  alignas(kLine) std::byte staging[2][kStagingBytes]{};
  std::unique_ptr<std::byte[]> segment = std::make_unique<std::byte[]>(kSegment);  // The peer's.
  alignas(MemberControl) std::byte controls[2][sizeof(MemberControl)];
  void begin() {
    mine = new (controls[0]) MemberControl{};
    theirs = new (controls[1]) MemberControl{};
  }
};

Common& common() {
  static const auto only = std::make_unique<Common>();
  return *only;
}

class HostileDomain final : public Domain {
 public:
  explicit HostileDomain(Common& common) : Domain(0, {common.mine, common.theirs}), common_(common) {}
  std::byte* staging(int member) override { return common_.staging[member]; }
  Result<std::byte*> resolve(int member, const SegmentRef& ref, std::size_t bytes) override {
    if (ref.segment != 1 || ref.offset > kSegment || bytes > kSegment - ref.offset)
      return Status(ErrorCode::internal, "beyond its segment", member);
    return common_.segment.get() + ref.offset;
  }
  bool can_pull() override { return true; }
  Status pull(int member, std::uint64_t, void* to, std::size_t bytes) override {
    if (bytes > kSegment) return Status(ErrorCode::internal, "nothing is there", member);
    std::memset(to, 7, bytes);
    return {};
  }
  void ring(int) override {}
  int bell_fd() override { return -1; }

 private:
  Common& common_;
};

class Rank {
 public:
  explicit Rank(Input& input) : input_(input) {
    common_.begin();
    auto transport = std::make_unique<testing::ScriptedTransport>();
    transport->memory = std::make_unique<HostileDomain>(common_);
    rank_.emplace(2, std::move(transport));
  }

  void act() {
    MemberControl& theirs = *common_.theirs;
    switch (input_.below(10)) {
      case 0:
        return call();
      case 1:
        return rank_->step(kSecond / 16 * static_cast<Nanos>(input_.below(64)));
      case 2:
        return scribble(input_.flag() ? theirs : *common_.mine);
      case 3:
        return told_by_peer();
      case 4:
      case 5:
        offer();
        return rank_->step(0);
      case 6:
        common_.theirs->recent[sequence() % kRecentCalls].write(sequence(), facts_);
        return;
      default:
        go_on();
        return rank_->step(0);
    }
  }

 private:
  std::uint64_t sequence() const { return calls_ - std::min<std::uint64_t>(calls_, 1); }
  std::uint64_t fingerprint() const { return fingerprint_of(hash_of(facts_), sequence()); }

  void call() {
    Call call;
    call.facts.collective =
        static_cast<Collective>(input_.below(static_cast<std::size_t>(Collective::barrier) + 1));
    call.facts.type = input_.flag() ? DataType::f32 : DataType::u8;
    call.facts.root = static_cast<std::int32_t>(input_.below(2));
    call.facts.count = call.facts.collective == Collective::barrier
                           ? 0
                           : std::uint64_t{1} << (input_.flag() ? 17 : input_.below(17));
    // Where members use each other's memory at the places that they offer.
    const std::string_view way = call.facts.collective == Collective::all_reduce ? "registered/fused"
                                 : input_.flag()                                 ? "pulled/direct"
                                                                                 : "registered/direct";
    const auto forced = resolve_algorithm(call.facts.collective, way, true);
    if (forced.ok() && input_.flag()) call.facts.algorithm = forced.value();
    const BufferElements elements = buffer_elements(call.facts, 0, 2);
    call.input_elements = elements.input;
    call.output_elements = elements.output;
    call.input = rank_->memory(elements.input * size_of(call.facts.type));
    call.output = rank_->memory(elements.output * size_of(call.facts.type));
    facts_ = call.facts;
    ++calls_;
    rank_->start(call);
  }
  void scribble(MemberControl& control) {
    const auto bytes = std::as_writable_bytes(std::span(&control, 1));
    const std::size_t at = input_.number() % bytes.size();
    const auto from = input_.bytes(std::min<std::size_t>(input_.below(64), bytes.size() - at));
    std::copy(from.begin(), from.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
  }
  void told_by_peer() {
    MemberControl& mine = *common_.mine;
    if (input_.flag()) std::memset(mine.reason, 'x', sizeof mine.reason);
    const auto text = input_.bytes(input_.below(32));
    std::memcpy(mine.reason, text.data(), text.size());
    mine.revoked.store(static_cast<std::uint32_t>(input_.below(4)));
  }
  void offer() {
    Offer& offer = common_.theirs->offer[input_.below(8) == 1 ? calls_ & 1 : sequence() & 1];
    offer.fingerprint = fingerprint();
    offer.input = place();
    offer.output = place();
    offer.in_place = input_.below(2);
    offer.pulls = static_cast<std::uint32_t>(input_.below(2));
    offer.took = static_cast<std::uint32_t>(input_.number());
    offer.call.store(input_.flag() ? calls_ : input_.number());
  }
  SegmentRef place() {
    SegmentRef ref{.owner = process_token(),
                   .segment = 1,
                   .offset = input_.flag() ? input_.number() : kSegment - input_.below(256)};
    if (input_.below(8) == 1) ref.owner = input_.flag() ? kUnusedBuffer : input_.number();
    if (input_.below(8) == 1) ref.segment = 0;
    return ref;
  }
  /// As a peer does that called the same, as far as it has come.
  void go_on() {
    MemberControl& theirs = *common_.theirs;
    for (auto& known : theirs.fingerprints) known.store(fingerprint());
    for (InlineLine& line : theirs.inline_line) line.fingerprint = fingerprint();
    const std::uint64_t number = input_.number();
    theirs.phase.store(input_.flag() ? theirs.phase.load() + 1 : number);
    const std::size_t turn = input_.below(2);
    theirs.inline_line[turn].flag.store(number);
    for (InlineTail& tail : theirs.inline_tails[turn]) tail.flag.store(number);
  }

  Input& input_;
  Common& common_ = common();
  std::optional<HostileRank> rank_;
  CallFacts facts_;
  std::uint64_t calls_ = 0;
};

/// Both ends at one ring, whose counters the other side changes meanwhile.
void use_ring(Input& input) {
  RingControl control{};
  const auto bytes = std::make_unique<std::byte[]>(kRingBytes);
  RingWriter writer({&control, bytes.get()}, real_env());
  RingReader reader({&control, bytes.get()});
  const std::vector<std::byte> out(kRingBytes);
  while (!input.empty()) {
    const std::size_t some = input.number() % (kRingBytes + 1);
    switch (input.below(6)) {
      case 0:
        control.written.store(input.flag() ? control.written + input.below(200) : input.number());
        break;
      case 1:
        control.consumed.store(input.flag() ? control.consumed + input.below(200) : input.number());
        break;
      case 2: {
        const std::size_t room = writer.room(some);
        require(room <= kRingBytes && (room == 0 || writer.state() == RingState::open));
        writer.put(std::span(out).first(std::min(room, some)));
        if (writer.state() == RingState::open) writer.pad(), writer.publish();
        break;
      }
      case 3: {
        const std::size_t here = reader.available(some);
        require(here <= kRingBytes);
        if (here == 0) break;
        const auto front = reader.front(some);
        std::byte sum{};
        for (const std::byte byte : front) sum ^= byte;
        control.reader_closed.store(sum == std::byte{1});
        reader.consume(front.size());
        if (input.flag()) reader.pad();
        reader.publish();
        break;
      }
      case 4:
        (input.flag() ? control.writer_closed : control.reader_closed).store(1);
        break;
      default:
        reader.pad();
    }
  }
}

}  // namespace

void run(Input input) {
  if (input.below(4) == 1) return use_ring(input);
  Rank rank(input);
  for (int actions = 0; !input.empty() && actions < 60; ++actions) rank.act();
}

}  // namespace lockstep::internal::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  lockstep::internal::fuzz::run({data, size});
  return 0;
}
