// A payload of several lines: each counts when its own flag is up, on every member.
#include "collectives/engine/inline_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace lockstep::internal {
namespace {

constexpr std::size_t kCount = 40, kBytes = kCount * sizeof(float), kLines = 4;  // A head and three tails.
constexpr std::uint64_t kFingerprint = 7;

/// Of which the test writes the parts of all members but the first.
class Lines final : public Domain {
 public:
  explicit Lines(std::vector<MemberControl*> controls) : Domain(0, std::move(controls)) {}
  std::byte* staging(int) override { return nullptr; }
  Result<std::byte*> resolve(int, const SegmentRef&, std::size_t) override {
    return Status(ErrorCode::internal, "nothing is registered");
  }
  void ring(int) override {}
  int bell_fd() override { return -1; }

  /// The first `lines` of a member's ones, in the first call.
  void raise(int member, std::size_t lines) {
    MemberControl& own = control(member);
    const std::array<float, kCount> numbers = ones();
    const auto* const from = reinterpret_cast<const std::byte*>(numbers.data());
    std::memcpy(own.inline_line[0].payload, from, kInlinePayload);
    own.inline_line[0].fingerprint = kFingerprint;
    own.inline_line[0].flag.store(1);
    for (std::size_t i = 0; i + 1 < lines; ++i) {
      const std::size_t at = kInlinePayload + i * kTailPayload;
      std::memcpy(own.inline_tails[0][i].payload, from + at, std::min(kTailPayload, kBytes - at));
      own.inline_tails[0][i].flag.store(1);
    }
  }
  static std::array<float, kCount> ones() {
    std::array<float, kCount> numbers;
    numbers.fill(1);
    return numbers;
  }
};

TEST(InlineRun, AwaitsEachLineOfEachMember) {
  std::array<MemberControl, 3> controls{};
  Lines domain({&controls[0], &controls[1], &controls[2]});
  const std::array<float, kCount> input = Lines::ones();
  std::array<float, kCount> output{};
  InlineCall call;
  call.facts.collective = Collective::all_reduce;
  call.facts.type = DataType::f32;
  call.facts.count = kCount;
  call.input = input.data();
  call.output = output.data();
  InlineRun run;
  run.begin(call, kFingerprint, 0);
  for (int member = 1; member < 3; ++member) {
    for (std::size_t lines = 1; lines <= kLines; ++lines) {
      auto progress = run.step(domain);
      ASSERT_TRUE(progress.ok());
      EXPECT_FALSE(progress->done) << "member " << member << ", line " << lines;
      domain.raise(member, lines);
    }
  }
  auto progress = run.step(domain);
  ASSERT_TRUE(progress.ok());
  EXPECT_TRUE(progress->done);
  EXPECT_EQ(std::count(output.begin(), output.end(), 3.0f), static_cast<std::ptrdiff_t>(kCount));
}

}  // namespace
}  // namespace lockstep::internal
