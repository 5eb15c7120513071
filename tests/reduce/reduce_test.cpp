// Every (type, op) with 1 to 9 sources, 1 to 3 destinations, odd counts, in place and not, against the
// definition, on every instruction set that this machine has.
#include "lib/reduce/reduce.hpp"

#include <gtest/gtest.h>

#include <array>
#include <span>
#include <string>

#include "hwy/targets.h"
#include "lib/base/element_types.hpp"
#include "lib/reduce/kernel.hpp"
#include "tests/reduce/reference.hpp"

namespace lockstep::internal {
namespace {

using namespace testing;

constexpr std::byte kGuard{0xA5};
/// Elements of guard before and after each destination; odd, so that buffers are aligned to their elements
/// only.
constexpr std::size_t kGuardElements = 3;

std::vector<DataType> all_types() {
  std::vector<DataType> types;
  for (int i = 0; i < kDataTypeCount; ++i) types.push_back(static_cast<DataType>(i));
  return types;
}
std::vector<ReduceOp> built_in_ops(DataType type) {
  std::vector<ReduceOp> ops;
  for (int i = 0; i < static_cast<int>(ReduceOp::user); ++i) {
    if (check_reduction(type, static_cast<ReduceOp>(i)).ok()) ops.push_back(static_cast<ReduceOp>(i));
  }
  return ops;
}

/// One call: inputs, destinations between guards, and where in-place destinations start out as sources.
struct Call {
  Reduction reduction;
  std::size_t source_count = 1;
  std::size_t destination_count = 1;
  bool in_place = false;  ///< Destination d is the buffer of source d, where there is one.

  std::string describe() const {
    return std::string(name_of(reduction.type)) + " " + std::string(name_of(reduction.op)) + " count " +
           std::to_string(reduction.count) + " " + std::to_string(source_count) + "->" +
           std::to_string(destination_count) + (in_place ? " in place" : "");
  }
};

class CallRunner {
 public:
  CallRunner(const Call& call, Generator& generator, bool specials)
      : call_(call), size_(size_of(call.reduction.type)) {
    const std::size_t count = call.reduction.count;
    for (std::size_t s = 0; s < call.source_count; ++s) {
      inputs_.push_back(random_elements(call.reduction.type, count, generator, specials));
      source_buffers_.push_back(guarded(inputs_.back()));
    }
    const Bytes blank(count * size_, std::byte{0x5A});
    for (std::size_t d = 0; d < call.destination_count; ++d) destination_buffers_.push_back(guarded(blank));
    for (Bytes& buffer : source_buffers_) sources_.push_back(payload(buffer));
    for (std::size_t d = 0; d < call.destination_count; ++d)
      destinations_.push_back(payload(destination_buffer(d)));
  }

  std::span<const void* const> sources() const { return sources_; }
  std::span<void* const> destinations() const { return destinations_; }

  void check() {
    for (std::size_t d = 0; d < call_.destination_count; ++d) {
      check_guards(destination_buffer(d));
      with_type(call_.reduction.type, [&]<typename T>(T) { check_elements<T>(destination_buffer(d)); });
    }
    const std::size_t overwritten = call_.in_place ? call_.destination_count : 0;
    for (std::size_t s = overwritten; s < call_.source_count; ++s) {
      ASSERT_EQ(std::memcmp(payload(source_buffers_[s]), inputs_[s].data(), inputs_[s].size()), 0)
          << "source " << s << " changed: " << call_.describe();
    }
  }

 private:
  bool is_in_place(std::size_t d) const { return call_.in_place && d < call_.source_count; }
  Bytes& destination_buffer(std::size_t d) {
    return is_in_place(d) ? source_buffers_[d] : destination_buffers_[d];
  }
  std::size_t guard_bytes() const { return kGuardElements * size_; }
  std::byte* payload(Bytes& buffer) const { return buffer.data() + guard_bytes(); }
  Bytes guarded(const Bytes& inside) const {
    Bytes buffer(inside.size() + 2 * guard_bytes(), kGuard);
    std::copy(inside.begin(), inside.end(), buffer.begin() + static_cast<std::ptrdiff_t>(guard_bytes()));
    return buffer;
  }

  void check_guards(const Bytes& buffer) {
    for (std::size_t i = 0; i < guard_bytes(); ++i) {
      ASSERT_EQ(buffer[i], kGuard) << "written before the destination: " << call_.describe();
      ASSERT_EQ(buffer[buffer.size() - 1 - i], kGuard)
          << "written past the destination: " << call_.describe();
    }
  }

  template <typename T>
  void check_elements(Bytes& buffer) {
    std::vector<T> values(call_.source_count);
    for (std::size_t i = 0; i < call_.reduction.count; ++i) {
      for (std::size_t s = 0; s < values.size(); ++s)
        std::memcpy(&values[s], inputs_[s].data() + i * size_, size_);
      T got;
      std::memcpy(&got, payload(buffer) + i * size_, size_);
      const Reduction& r = call_.reduction;
      ASSERT_TRUE(same_element(r.type, got, expected_element(r.type, r.op, values, r.divisor)))
          << "element " << i << ": " << call_.describe();
    }
  }

  Call call_;
  std::size_t size_;
  std::vector<Bytes> inputs_, source_buffers_, destination_buffers_;
  std::vector<const void*> sources_;
  std::vector<void*> destinations_;
};

void reduce_and_check(const Call& call, Generator& generator, bool specials) {
  CallRunner runner(call, generator, specials);
  reduce(call.reduction, runner.sources(), runner.destinations());
  runner.check();
}

class EveryType : public ::testing::TestWithParam<DataType> {};

TEST_P(EveryType, EveryOpAndShape) {
  Generator generator(7);
  for (const ReduceOp op : built_in_ops(GetParam())) {
    for (std::size_t sources = 1; sources <= 9; ++sources) {
      for (std::size_t destinations = 1; destinations <= 3; ++destinations) {
        for (const bool in_place : {false, true}) {
          for (const std::size_t count : {1, 2, 13, 131}) {
            const Call call{{GetParam(), op, nullptr, count, 3}, sources, destinations, in_place};
            ASSERT_NO_FATAL_FAILURE(reduce_and_check(call, generator, true));
          }
        }
      }
    }
  }
}

TEST_P(EveryType, EveryCountAroundTheVectorSizes) {
  Generator generator(8);
  for (const ReduceOp op : built_in_ops(GetParam())) {
    for (std::size_t count = 0; count <= 300; count = count < 70 ? count + 1 : count + 19) {
      const Call call{{GetParam(), op, nullptr, count, 4}, 2, 2, true};
      ASSERT_NO_FATAL_FAILURE(reduce_and_check(call, generator, true));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Reduce, EveryType, ::testing::ValuesIn(all_types()),
                         [](const auto& parameter) { return std::string(name_of(parameter.param)); });

/// Lets Highway see only one instruction set for the length of a scope. reduce() keeps what the processor
/// has.
class OnlyTarget {
 public:
  explicit OnlyTarget(std::int64_t target) {
    kernel_table();  // Made at its first use, which is not to be in here.
    choose(target);
  }
  ~OnlyTarget() { choose(0); }  // 0 is what the processor has.
  OnlyTarget(const OnlyTarget&) = delete;
  OnlyTarget& operator=(const OnlyTarget&) = delete;

 private:
  static void choose(std::int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

void check_kernel(const KernelTable& table, const Call& call, Generator& generator) {
  for (const bool backwards : {false, true}) {
    CallRunner runner(call, generator, true);
    table.at(call.reduction.type, call.reduction.op)({.sources = runner.sources().data(),
                                                      .source_count = call.source_count,
                                                      .destinations = runner.destinations().data(),
                                                      .destination_count = call.destination_count,
                                                      .count = call.reduction.count,
                                                      .divisor = call.reduction.divisor,
                                                      .ends_backwards = backwards});
    runner.check();
  }
}

TEST(Kernels, EveryInstructionSetGivesTheDefinedResult) {
  Generator generator(9);
  const std::int64_t supported = hwy::SupportedTargets();
  for (std::int64_t targets = supported; targets != 0; targets &= targets - 1) {
    const std::int64_t target = targets & -targets;
    const OnlyTarget only(target);
    const KernelTable table = build_kernel_table();
    SCOPED_TRACE(std::string(hwy::TargetName(target)) + " gives " + simd_target());
    for (const DataType type : all_types()) {
      for (const ReduceOp op : built_in_ops(type)) {
        // A count with a misaligned head, groups, single vectors and a partial one for every vector size.
        for (const std::size_t count : {1, 11, 75, 4391}) {
          ASSERT_NO_FATAL_FAILURE(
              check_kernel(table, {{type, op, nullptr, count, 3}, 3, 2, false}, generator));
          ASSERT_NO_FATAL_FAILURE(
              check_kernel(table, {{type, op, nullptr, count, 2}, 2, 2, true}, generator));
        }
      }
    }
  }
}

/// Every type and operator, in place and not, lengths with and without whole groups of vectors.
void check_all_with(bool Reduction::*wish) {
  Generator generator(11);
  for (const DataType type : all_types()) {
    for (const ReduceOp op : built_in_ops(type)) {
      for (const std::size_t count : {1, 75, 4391}) {
        for (std::size_t destinations = 1; destinations <= 2; ++destinations) {
          Call call{{type, op, nullptr, count, 2}, 2, destinations, false};
          call.reduction.*wish = true;
          ASSERT_NO_FATAL_FAILURE(reduce_and_check(call, generator, true));
          call.in_place = true;
          ASSERT_NO_FATAL_FAILURE(reduce_and_check(call, generator, true));
        }
      }
    }
  }
}

TEST(Kernels, ResultsThatPassByTheCachesAreTheSame) { check_all_with(&Reduction::past_caches); }

TEST(Kernels, ResultsOfPassesThatEndBackwardsAreTheSame) { check_all_with(&Reduction::ends_backwards); }

/// Every bit pattern as the first operand; as the second, every pattern again for 8 bits, and a random one
/// for 16.
template <typename Bits>
void check_all_patterns(const KernelTable& table, DataType type, ReduceOp op, double divisor,
                        Generator& generator) {
  constexpr std::size_t kCount = 65536;
  std::vector<Bits> a(kCount), b(kCount), result(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    a[i] = static_cast<Bits>(i);
    b[i] = static_cast<Bits>(sizeof(Bits) == 1 ? i >> 8 : generator());
  }
  const std::array<const void*, 2> sources{a.data(), b.data()};
  void* const destination = result.data();
  table.at(type, op)({.sources = sources.data(),
                      .source_count = 2,
                      .destinations = &destination,
                      .destination_count = 1,
                      .count = kCount,
                      .divisor = divisor});
  for (std::size_t i = 0; i < kCount; ++i) {
    const Bits expected = expected_element<Bits>(type, op, {a[i], b[i]}, divisor);
    ASSERT_TRUE(same_element(type, result[i], expected))
        << name_of(type) << " " << name_of(op) << " of " << +a[i] << " and " << +b[i] << " gives "
        << +result[i];
  }
}

TEST(Kernels, SmallFloatsAreRightForEveryBitPattern) {
  Generator generator(10);
  const std::int64_t supported = hwy::SupportedTargets();
  for (std::int64_t targets = supported; targets != 0; targets &= targets - 1) {
    const OnlyTarget only(targets & -targets);
    const KernelTable table = build_kernel_table();
    SCOPED_TRACE(simd_target());
    const auto check_all = [&](ReduceOp op, double divisor) {
      check_all_patterns<std::uint16_t>(table, DataType::f16, op, divisor, generator);
      check_all_patterns<std::uint16_t>(table, DataType::bf16, op, divisor, generator);
      check_all_patterns<std::uint8_t>(table, DataType::f8e4m3, op, divisor, generator);
      check_all_patterns<std::uint8_t>(table, DataType::f8e5m2, op, divisor, generator);
    };
    for (const ReduceOp op : built_in_ops(DataType::f16)) ASSERT_NO_FATAL_FAILURE(check_all(op, 3));
    ASSERT_NO_FATAL_FAILURE(check_all(ReduceOp::avg, 0.75));  // What is left of 3: average_steps().
  }
}

TEST(Reduce, ManySourcesRoundOnce) {
  // 1 + 20 times 2^-9 in f16 is lost addend by addend, and kept when the sum is rounded once.
  constexpr std::size_t kSources = 21;
  const std::uint16_t one = F16::from_float(1), little = F16::from_float(std::ldexp(1.0f, -12));
  std::vector<const void*> sources(kSources, &little);
  sources[0] = &one;
  std::uint16_t result = 0;
  void* const destination = &result;
  reduce({DataType::f16, ReduceOp::sum, nullptr, 1, 0}, sources, {&destination, 1});
  EXPECT_EQ(result, F16::from_float(1 + 20 * std::ldexp(1.0f, -12)));
  EXPECT_NE(result, one);
}

TEST(Reduce, CombinesFromLeftToRight) {
  // (1e8 + -1e8) + 1 is 1, and 1e8 + (-1e8 + 1) is 0 in f32.
  const std::array<float, 3> values{1e8f, -1e8f, 1.0f};
  const std::array<const void*, 3> sources{&values[0], &values[1], &values[2]};
  float result = 0;
  void* const destination = &result;
  reduce({DataType::f32, ReduceOp::sum, nullptr, 1, 0}, sources, {&destination, 1});
  EXPECT_EQ(result, 1.0f);
}

TEST(Reduce, AvgWithoutADivisorIsASum) {
  const std::array<std::int32_t, 2> values{5, 6};
  const std::array<const void*, 2> sources{&values[0], &values[1]};
  for (const double divisor : {0.0, 1.0}) {
    std::int32_t result = 0;
    void* const destination = &result;
    reduce({DataType::i32, ReduceOp::avg, nullptr, 1, divisor}, sources, {&destination, 1});
    EXPECT_EQ(result, 11);
  }
}

TEST(Reduce, IntegerAvgWrapsThenTruncatesTowardZero) {
  const std::array<std::int8_t, 2> values{-100, -29};  // -129 wraps to 127; 127 / 2 is 63.
  const std::array<std::int8_t, 2> negative{-3, -4};   // -7 / 2 is -3.
  std::int8_t result = 0;
  void* const destination = &result;
  reduce({DataType::i8, ReduceOp::avg, nullptr, 1, 2}, std::array<const void*, 2>{&values[0], &values[1]},
         {&destination, 1});
  EXPECT_EQ(result, 63);
  reduce({DataType::i8, ReduceOp::avg, nullptr, 1, 2}, std::array<const void*, 2>{&negative[0], &negative[1]},
         {&destination, 1});
  EXPECT_EQ(result, -3);
}

/// x op y = 10 x + y: neither commutative nor associative, so it shows the order of the calls.
void append_digit(const void* in, void* inout, std::size_t count, void* context) {
  ++*static_cast<int*>(context);
  for (std::size_t i = 0; i < count; ++i) {
    auto* y = static_cast<std::int64_t*>(inout) + i;
    *y = 10 * static_cast<const std::int64_t*>(in)[i] + *y;
  }
}

TEST(Reduce, UserOpSeesTheSourcesFromLeftToRightInBlocks) {
  constexpr std::size_t kCount = 10'001;
  std::vector<std::int64_t> a(kCount, 1), b(kCount, 2), c(kCount, 3), out(kCount, 0);
  int calls = 0;
  const UserOp op{append_digit, &calls};
  const std::array<const void*, 3> sources{a.data(), b.data(), c.data()};
  const std::array<void*, 2> destinations{b.data(), out.data()};
  reduce({DataType::i64, ReduceOp::user, &op, kCount, 0}, sources, destinations);
  for (std::size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(b[i], 123);
    ASSERT_EQ(out[i], 123);
    ASSERT_EQ(a[i], 1);
  }
  EXPECT_GT(calls, 2);
}

TEST(Reduce, AThrowingUserOpPassesThrough) {
  const UserOp op{[](const void*, void*, std::size_t, void*) { throw std::runtime_error("no"); }, nullptr};
  const float value = 1;
  const std::array<const void*, 2> sources{&value, &value};
  float result = 0;
  void* const destination = &result;
  EXPECT_THROW(reduce({DataType::f32, ReduceOp::user, &op, 1, 0}, sources, {&destination, 1}),
               std::runtime_error);
}

TEST(CheckReduction, RefusesByName) {
  EXPECT_EQ(
      check_reduction(DataType::f32, ReduceOp::band).message(),
      "band needs an integer or boolean type, not f32: reduce the bits as an unsigned type of the same size");
  EXPECT_EQ(check_reduction(DataType::complex64, ReduceOp::min).message(),
            "min needs an ordered type, not complex64: use sum, prod or avg, or a user-defined op");
  EXPECT_EQ(check_reduction(DataType::boolean, ReduceOp::premul_sum).message(),
            "premul_sum needs a real float or integer type, not bool: scale the input yourself and use sum");
  EXPECT_EQ(check_reduction(DataType::boolean, ReduceOp::avg).message(),
            "avg needs an arithmetic type, not bool: use sum for or, prod for and");
  EXPECT_EQ(check_reduction(static_cast<DataType>(99), ReduceOp::sum).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(check_reduction(DataType::f32, static_cast<ReduceOp>(99)).code(), ErrorCode::invalid_argument);
}

TEST(CheckReduction, AcceptsWhatTypesHppDefines) {
  for (const DataType type : all_types()) {
    const bool is_bool = type == DataType::boolean;
    EXPECT_TRUE(check_reduction(type, ReduceOp::sum).ok());
    EXPECT_TRUE(check_reduction(type, ReduceOp::prod).ok());
    EXPECT_TRUE(check_reduction(type, ReduceOp::user).ok());
    EXPECT_EQ(check_reduction(type, ReduceOp::min).ok(), !is_complex(type));
    EXPECT_EQ(check_reduction(type, ReduceOp::max).ok(), !is_complex(type));
    EXPECT_EQ(check_reduction(type, ReduceOp::avg).ok(), !is_bool);
    EXPECT_EQ(check_reduction(type, ReduceOp::bxor).ok(), is_integer(type) || is_bool);
    EXPECT_EQ(check_reduction(type, ReduceOp::premul_sum).ok(), !is_bool && !is_complex(type));
  }
}

}  // namespace
}  // namespace lockstep::internal
