// One rank's run of a collective in a domain, stepped by hand.
#include "collectives/engine/domain_run.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

#include "tests/support/must.hpp"

namespace lockstep::internal {
namespace {

using testing::must;

/// Two members in one address space, each with a control area and memory that is named by its address.
class PlainDomain final : public Domain {
 public:
  using Controls = std::array<MemberControl, 2>;
  PlainDomain(int rank, Controls& controls) : Domain(rank, {&controls[0], &controls[1]}) {}
  std::byte* staging(int) override { return nullptr; }
  Result<std::byte*> resolve(int, const SegmentRef& ref, std::size_t bytes) override {
    return own_address(ref, bytes);
  }
  void ring(int) override {}
  int bell_fd() override { return -1; }
};

struct Member {
  Member(int rank, PlainDomain::Controls& controls) : domain(rank, controls) {
    shape.rank = rank;
    shape.world = 2;
    shape.count = numbers.size();
    choice.registered = must(find_algorithm(Collective::all_reduce, Medium::domain_registered, "fused"));
    choice.shape = &shape;
    Buffers buffers;
    buffers.element = sizeof(float);
    buffers.self = rank;
    buffers.input = buffers.output = reinterpret_cast<std::byte*>(numbers.data());
    const SegmentRef place = direct_ref(numbers.data());
    Combine combine;
    combine.type = DataType::f32;
    run.begin(choice, buffers, combine, {}, {place, place});
    run.enter({});
  }
  Result<RunProgress> step() { return run.step(domain, cache); }

  PlainDomain domain;
  std::vector<float> numbers = std::vector<float>(64, 1.0f);
  Shape shape;
  DomainChoice choice;
  ProgramCache cache;
  DomainRun run;
};

TEST(DomainRun, TwoMembersReduceInPlace) {
  const auto controls = std::make_unique<PlainDomain::Controls>();
  Member first(0, *controls), second(1, *controls);
  EXPECT_FALSE(must(first.step()).done);
  EXPECT_FALSE(must(second.step()).done);  // It wrote its part, and waits for the other's.
  EXPECT_TRUE(must(first.step()).done);
  EXPECT_TRUE(must(second.step()).done);
  EXPECT_EQ(first.numbers, std::vector<float>(64, 2.0f));
  EXPECT_EQ(second.numbers, std::vector<float>(64, 2.0f));
}

// The engine looks once more at a call that failed before it tells of the loss.
TEST(DomainRun, ARevokedCallMayBeSteppedAgainAndTouchesNothing) {
  const auto controls = std::make_unique<PlainDomain::Controls>();
  Member first(0, *controls), second(1, *controls);
  EXPECT_FALSE(must(second.step()).done);
  (*controls)[0].revoked.store(1);  // Between the offers and the declaration of writing.
  for (int i = 0; i < 2; ++i) EXPECT_EQ(first.step().status().code(), ErrorCode::aborted);
  EXPECT_EQ((*controls)[0].writing.load(), 1u);
  first.run.abandon(first.domain);
  EXPECT_EQ((*controls)[0].writing.load(), 0u);
  EXPECT_EQ(second.numbers, std::vector<float>(64, 1.0f));
}

}  // namespace
}  // namespace lockstep::internal
