// What one rank of a DeviceReducer cannot get while its peers go on, over the host backend: they are told.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "tests/ddp/forked_twins.hpp"
#include "tests/ddp/shortage.hpp"
#include "tests/support/eventually.hpp"

namespace lockstep {
namespace {

using testing::backend;
using testing::must;
using testing::on_forked_ranks;
using testing::thrown_by;

constexpr int kLacking = 1;  // The rank that gets nothing.

/// Parameters of single numbers, a bucket each.
class DeviceNumbers {
 public:
  DeviceNumbers(Communicator& host, std::size_t count, DeviceReducerOptions options)
      : device_(host, 0),
        values_(static_cast<float*>(allocate_device(count * sizeof(float), 0))),
        count_(count),
        stream_(must(backend().create_stream())) {
    std::vector<Parameter> list;
    for (std::size_t i = 0; i < count; ++i)
      list.push_back({"n" + std::to_string(i), DataType::f32, {}, values_ + i, nullptr});
    reducer_.emplace(host, device_, list, options);
  }
  ~DeviceNumbers() {
    reducer_.reset();
    must(backend().destroy_stream(stream_));
    free_device(values_);
  }
  void mark_all() {
    for (std::size_t i = 0; i < count_; ++i) reducer_->mark_ready(i, stream_);
  }
  void wait() { reducer_->wait(stream_); }
  DeviceReducer& reducer() { return *reducer_; }
  Stream stream() const { return stream_; }

 private:
  DeviceCommunicator device_;
  float* const values_;
  const std::size_t count_;
  const Stream stream_;
  std::optional<DeviceReducer> reducer_;
};

void expect_tells(const Error& error, const std::string& text) {
  EXPECT_EQ(error.culprit(), kLacking) << error.what();
  EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
}

/// Others that have the group already would wait in that of the devices.
TEST(DeviceShortage, OfAGroupOfItsOwnEndsThatOfTheDevicesToo) {
  on_forked_ranks(2, [](Communicator& host) {
    DeviceCommunicator device(host, 0);
    auto* const value = static_cast<float*>(allocate_device(sizeof(float), 0));
    const Parameter number{"number", DataType::f32, {}, value, nullptr};
    expect_tells(thrown_by([&] {
                   const testing::NoDescriptors none(host.rank() == kLacking);
                   const DeviceReducer reducer(host, device, {&number, 1});
                 }),
                 "rank 1");
    EXPECT_TRUE(testing::eventually([&] { return device.state() != ErrorCode::ok; }));
    free_device(value);
  });
}

TEST(DeviceShortage, OfMemoryInWaitFailsTheStepOnAllRanks) {
  on_forked_ranks(2, [](Communicator& host) {
    constexpr std::size_t kCount = 2'000;
    DeviceReducerOptions options;
    options.check_replicas_every = 1;  // A hash of each parameter.
    DeviceNumbers numbers(host, kCount, options);
    numbers.mark_all();
    expect_tells(thrown_by([&] {
                   const testing::NoMemoryFrom none(kCount * sizeof(std::uint64_t), host.rank() == kLacking);
                   numbers.wait();
                 }),
                 "DeviceReducer::wait on rank 1: no memory");
  });
}

/// Who lacks a mark is asked for in the midst of the verdict.
TEST(DeviceShortage, OfMemoryForTheVerdictFailsTheStepOnAllRanks) {
  on_forked_ranks(2, [](Communicator& host) {
    constexpr std::size_t kCount = 8'000;
    constexpr std::size_t kBits = kCount / 8;  // Of each rank, one for a parameter.
    DeviceNumbers numbers(host, kCount, {});
    for (std::size_t i = 1; i < kCount; ++i) numbers.reducer().mark_ready(i, numbers.stream());
    expect_tells(thrown_by([&] {
                   const testing::NoMemoryFrom none(2 * kBits, host.rank() == kLacking);
                   numbers.wait();
                 }),
                 "gradients of step 1: no memory");
  });
}

/// Also where there is memory again for the buckets that come after it.
TEST(DeviceShortage, OfMemoryForACollectiveInBackwardFailsTheStepOnAllRanks) {
  on_forked_ranks(2, [](Communicator& host) {
    constexpr std::size_t kCount = 6;
    DeviceReducerOptions options;
    options.bucket_bytes = options.first_bucket_bytes = 4;
    DeviceNumbers numbers(host, kCount, options);
    numbers.mark_all();
    numbers.wait();
    const auto mark = [&](std::size_t i) { numbers.reducer().mark_ready(i, numbers.stream()); };
    mark(kCount - 1);  // In the order of the buckets.
    {
      const testing::NoMemoryFrom none(1, host.rank() == kLacking);
      mark(kCount - 2);
    }
    for (std::size_t i = kCount - 2; i-- > 0;) mark(i);
    expect_tells(thrown_by([&] { numbers.wait(); }), "DeviceReducer::wait on rank 1: no memory");
  });
}

/// The step before has ended well everywhere.
TEST(DeviceShortage, OfMemoryForRebuiltBucketsEndsTheNextStepOnAllRanks) {
  on_forked_ranks(2, [](Communicator& host) {
    DeviceReducerOptions options;
    options.bucket_bytes = options.first_bucket_bytes = 4;
    options.gradients_moved = [] {};
    DeviceNumbers numbers(host, 6, options);
    numbers.mark_all();
    {
      const testing::NoDescriptors none(host.rank() == kLacking);
      EXPECT_NO_THROW(numbers.wait());
    }
    expect_tells(thrown_by([&] {
                   numbers.mark_all();
                   numbers.wait();
                 }),
                 "DeviceReducer cannot lay out its buckets anew on rank 1");
  });
}

TEST(DeviceShortage, OfMemoryForParametersThatJoinEndsTheNextStepOnAllRanks) {
  on_forked_ranks(3, [](Communicator& host) {
    DeviceReducerOptions options;
    options.compression = DeviceCompression::i8;
    DeviceNumbers numbers(host, 6, options);
    DeviceReducer& reducer = numbers.reducer();
    const Parameter more{"more", DataType::f32, {}, reducer.gradient(0), nullptr};
    const auto add = [&] { reducer.add_parameters({&more, 1}); };
    expect_tells(thrown_by([&] {
                   const testing::NoDescriptors none(host.rank() == kLacking);
                   add();
                 }),
                 "add_parameters");
    EXPECT_EQ(reducer.bytes_on_wire(), 0u);
    const std::function<void()> calls[] = {
        [&] { numbers.mark_all(); },
        [&] { numbers.wait(); },
        add,
        [&] { static_cast<void>(reducer.begin_step(1, numbers.stream())); },
        [&] { reducer.freeze({}, numbers.stream()); },
        [&] { reducer.clip_gradients(1, numbers.stream(), nullptr); },
        [&] { const auto pause = reducer.no_sync(); },
    };
    for (const auto& call : calls) expect_tells(thrown_by(call), "add_parameters");
  });
}

}  // namespace
}  // namespace lockstep
