// Data that kernels write are those that the host writes, and what they count as wrong is wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "bench/device/check.hpp"

namespace lockstep::bench {
namespace {

const Operation& operation(std::string_view name) {
  const auto rows = operations();
  return *std::find_if(rows.begin(), rows.end(), [&](const Operation& row) { return row.name == name; });
}

class DeviceCheckTest : public ::testing::TestWithParam<DataType> {};

TEST_P(DeviceCheckTest, FillsAsTheHostAndCountsWhatDiffers) {
  constexpr std::uint64_t kCount = 20'011;  // More than two periods.
  const Call call{&operation("all_gather"), GetParam(), ReduceOp::sum, 0, kCount, 1, 3};
  const Data data(call);
  const std::size_t size = size_of(call.type);
  const Stream stream = device::create_stream();
  {
    DeviceCheck check(stream);
    const DeviceBuffer input(kCount * size), output(3 * kCount * size);
    std::vector<std::byte> expected(kCount * size), there(kCount * size);
    data.fill(expected.data(), 7);
    check.fill(data, call, 7, input.data());
    download(there, input.data(), stream);
    EXPECT_EQ(std::memcmp(there.data(), expected.data(), there.size()), 0);

    std::vector<std::byte> all;  // As all_gather leaves it.
    for (int rank = 0; rank < call.world; ++rank) {
      Call theirs = call;
      theirs.rank = rank;
      Data(theirs).fill(expected.data(), 7);
      all.insert(all.end(), expected.begin(), expected.end());
    }
    upload(output.data(), all, stream);
    EXPECT_EQ(check.count_wrong(data, call, 7, output.data()), 0u);
    EXPECT_GT(check.count_wrong(data, call, 8, output.data()), kCount) << "the result of another round";
    for (const std::size_t wrong : {std::size_t{0}, std::size_t{30'000}, 3 * kCount - 1})
      all[wrong * size] ^= std::byte{1};
    upload(output.data(), all, stream);
    EXPECT_EQ(check.count_wrong(data, call, 7, output.data()), 3u);
  }
  device::destroy_stream(stream);
}

INSTANTIATE_TEST_SUITE_P(Sizes, DeviceCheckTest,
                         ::testing::Values(DataType::u8, DataType::bf16, DataType::f32, DataType::i64,
                                           DataType::complex128),
                         [](const auto& test) { return std::string(name_of(test.param)); });

}  // namespace
}  // namespace lockstep::bench
