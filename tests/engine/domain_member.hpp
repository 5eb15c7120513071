// Two members of a domain in one address space, for runs that are stepped by hand.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <utility>
#include <vector>

#include "collectives/engine/domain_run.hpp"
#include "lib/memory/segment.hpp"
#include "tests/support/must.hpp"

namespace lockstep::internal {

/// What two members share.
struct Common {
  std::array<MemberControl, 2> control{};
  alignas(kLine) std::byte staging[2][kStagingBytes]{};
};

/// Two members in one address space, whose memory is named by its address.
class PlainDomain final : public Domain {
 public:
  PlainDomain(int rank, Common& common)
      : Domain(rank, {&common.control[0], &common.control[1]}), common_(common) {}
  std::byte* staging(int member) override { return common_.staging[member]; }
  Result<std::byte*> resolve(int, const SegmentRef& ref, std::size_t bytes) override {
    resolved.push_back(ref);
    reached.push_back(bytes);
    return own_address(ref, bytes);
  }
  bool can_pull() override { return static_cast<bool>(pulling); }
  Status pull(int, std::uint64_t address, void* to, std::size_t bytes) override {
    pulling();
    std::memcpy(to, reinterpret_cast<const void*>(address), bytes);
    return {};
  }
  void ring(int) override {}
  int bell_fd() override { return -1; }

  std::function<void()> pulling;     ///< Before the bytes are read.
  std::vector<SegmentRef> resolved;  ///< Of members.
  std::vector<std::size_t> reached;  ///< How far into them.

 private:
  Common& common_;
};

enum class Offered : bool { nothing, buffer };

struct Member {
  Member(int rank, Common& common, Offered offered = Offered::buffer, std::size_t count = 64)
      : domain(rank, common), numbers(count, 1.0f) {
    shape.rank = rank;
    shape.world = 2;
    shape.count = numbers.size();
    shape.segment = shape.count;
    shape.staging = kStagingBytes / 2 / sizeof(float);
    choice.staged = testing::must(find_algorithm(Collective::all_reduce, Medium::domain_staged, "two_shot"));
    choice.registered =
        testing::must(find_algorithm(Collective::all_reduce, Medium::domain_registered, "fused"));
    choice.shape = &shape;
    Combine combine;
    combine.type = DataType::f32;
    begin(combine, offered);
  }
  void begin(const Combine& combine, Offered offered = Offered::buffer) { begin(combine, places(offered)); }
  void begin(const Combine& combine, const OfferedBuffers& offered) {
    Buffers buffers;
    buffers.element = sizeof(float);
    buffers.self = shape.rank;
    buffers.input = buffers.output = reinterpret_cast<std::byte*>(numbers.data());
    buffers.hand_over = &hand_over;
    run.begin(choice, buffers, combine, {}, offered);
    run.enter({});
  }
  /// From the first member, of whose process this one is not.
  void begin_broadcast(PullTrial* trial = nullptr, std::uint64_t segment = 0) {
    const auto row = [](Medium medium) {
      return testing::must(find_algorithm(Collective::broadcast, medium, "direct"));
    };
    shape.collective = Collective::broadcast;
    choice = {};
    choice.pulled = row(Medium::domain_pulled);
    if (trial != nullptr) {
      choice.staged = row(Medium::domain_staged);
      choice.registered = row(Medium::domain_registered);
    }
    choice.trial = trial;
    choice.shape = &shape;
    begin({}, elsewhere(segment));
  }
  OfferedBuffers elsewhere(std::uint64_t segment = 0) const {
    SegmentRef place = direct_ref(numbers.data());
    place.owner ^= 1u << shape.rank;
    place.segment = segment;
    return {place, place};
  }
  /// The same call once more; where `registered` is, on that memory of lockstep::allocate.
  void broadcast_again(void* registered) {
    const DomainPosition next = run.end();
    const std::size_t bytes = numbers.size() * sizeof(float);
    const auto segment = find_segment(registered, bytes);
    void* const place = segment ? registered : numbers.data();
    run.begin_again(place, place, {.sequence = next.calls},
                    segment ? OfferedBuffers{*segment, *segment, bytes, bytes} : elsewhere());
    run.enter(next);
  }
  /// To the first member, from where it lies.
  void begin_gather() {
    shape.collective = Collective::gather;
    choice = {};
    choice.registered =
        testing::must(find_algorithm(Collective::gather, Medium::domain_registered, "direct"));
    choice.shape = &shape;
    shape.count = numbers.size() / 2;
    const SegmentRef place = direct_ref(numbers.data());
    begin({}, OfferedBuffers{place, shape.rank == 0 ? place : SegmentRef{.owner = kUnusedBuffer}});
  }
  /// The same call once more, on `other` numbers.
  void repeat(std::vector<float> other, Offered offered) {
    const DomainPosition next = run.end();
    numbers = std::move(other);
    run.begin_again(numbers.data(), numbers.data(), {.sequence = next.calls}, places(offered));
    run.enter(next);
  }
  OfferedBuffers places(Offered offered) const {
    const SegmentRef place = offered == Offered::buffer ? direct_ref(numbers.data()) : SegmentRef{};
    return {place, place};
  }
  Result<RunProgress> step() { return run.step(domain, cache); }

  PlainDomain domain;
  std::vector<float> numbers;
  HandOver hand_over{real_env()};
  Shape shape;
  DomainChoice choice;
  ProgramCache cache;
  DomainRun run;
};

/// A member that gives up marks all, and its caller may then write at once.
struct Leaver {
  MemberControl& mark;
  float& number;
  void leave() {
    mark.revoked.store(2);
    number = 7.0f;
  }
  static void combine(const void* in, void* inout, std::size_t count, void* leaver) {
    EXPECT_NE(static_cast<Leaver*>(leaver)->mark.in_use.load(), 0u);
    static_cast<Leaver*>(leaver)->leave();
    for (std::size_t i = 0; i < count; ++i) static_cast<float*>(inout)[i] += static_cast<const float*>(in)[i];
  }
};

}  // namespace lockstep::internal
