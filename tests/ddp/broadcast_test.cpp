// Reducer::broadcast: the root's buffers become those of all, or nobody's change.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/ddp.hpp"
#include "tests/ddp/numbers.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/thrown_by.hpp"

namespace lockstep {
namespace {

using testing::on_ranks;
using testing::thrown_by;

TEST(Broadcast, MakesBuffersThoseOfTheRoot) {
  on_ranks(3, "auto", [](Communicator& communicator) {
    Numbers numbers(communicator, 1);
    std::vector<float> mean(5, static_cast<float>(communicator.rank()));
    std::int64_t batches = 100 + communicator.rank();
    const std::vector<Parameter> buffers{{"mean", DataType::f32, {5}, mean.data(), nullptr},
                                         {"none", DataType::f32, {0}, nullptr, nullptr},
                                         {"batches", DataType::i64, {}, &batches, nullptr}};
    numbers.reducer().broadcast(buffers);
    EXPECT_EQ(mean, std::vector<float>(5, 0));
    EXPECT_EQ(batches, 100);
    batches += communicator.rank();
    numbers.reducer().broadcast(buffers, 2);
    EXPECT_EQ(batches, 102);
  });
}

TEST(Broadcast, OfANullPointerIsAnErrorOnEveryRank) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Numbers numbers(communicator, 1);
    float value = 0;
    const std::vector<Parameter> buffers{
        {"mean", DataType::f32, {}, communicator.rank() == 1 ? nullptr : &value, nullptr}};
    const Error error = thrown_by([&] { numbers.reducer().broadcast(buffers); });
    EXPECT_EQ(error.culprit(), 1);
    EXPECT_NE(std::string(error.what()).find("\"mean\" f32 [] has a null value"), std::string::npos);
  });
}

/// Of as many bytes in all.
TEST(Broadcast, OfListsInAnotherOrderIsAnErrorThatLeavesThemAlone) {
  on_ranks(2, "auto", [](Communicator& communicator) {
    Numbers numbers(communicator, 1);
    const auto rank = static_cast<float>(communicator.rank());
    std::vector<float> mean(2, rank), variance(3, rank);
    std::vector<Parameter> buffers{{"mean", DataType::f32, {2}, mean.data(), nullptr},
                                   {"variance", DataType::f32, {3}, variance.data(), nullptr}};
    if (communicator.rank() == 1) std::swap(buffers[0], buffers[1]);
    const Error error = thrown_by([&] {
      numbers.reducer().broadcast(buffers);
      for (int i = 0; i < 2; ++i) communicator.barrier();  // The root hears of it here.
    });
    EXPECT_EQ(error.culprit(), 1);
    EXPECT_NE(std::string(error.what()).find("its list of tensors is not that of rank 0"), std::string::npos)
        << error.what();
    EXPECT_EQ(mean, std::vector<float>(2, rank));
    EXPECT_EQ(variance, std::vector<float>(3, rank));
  });
}

}  // namespace
}  // namespace lockstep
