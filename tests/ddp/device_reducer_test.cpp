// Gradients in device memory, over the host backend: averages with the bits of the host's Reducer, in the
// order of streams, without a call that waits for the device.
#include "lockstep/ddp/device_reducer.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "ddp/device/host_options.hpp"
#include "lib/device/backend.hpp"
#include "lockstep/ddp.hpp"
#include "tests/ddp/device_twins.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/must.hpp"

namespace lockstep {
namespace {

using internal::testing::must;
using testing::backend;
using testing::error_of;
using testing::on_ranks;

/// Parameters of odd sizes, some larger than a bucket, and their values in device memory.
class Model {
 public:
  explicit Model(int rank, int device) {
    std::size_t total = 0;
    for (const auto& shape : kShapes) total += shape[0] * shape[1];
    values_ = static_cast<float*>(allocate_device(total * sizeof(float), device));
    float* next = values_;
    for (const auto& shape : kShapes) {
      Parameter parameter;
      parameter.name = "layer" + std::to_string(parameters.size());
      parameter.shape = shape;
      parameter.value = next;
      for (std::size_t i = 0; i < shape[0] * shape[1]; ++i) *next++ = static_cast<float>(rank + 1);
      parameters.push_back(std::move(parameter));
    }
  }
  ~Model() { free_device(values_); }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  std::size_t count(std::size_t i) const { return parameters[i].shape[0] * parameters[i].shape[1]; }

  std::vector<Parameter> parameters;

 private:
  static inline const std::vector<std::vector<std::size_t>> kShapes = {{17, 3},   {1, 5}, {64, 64}, {1, 64},
                                                                       {100, 41}, {1, 1}, {3, 700}};
  float* values_;
};

DeviceReducerOptions small_buckets(DeviceCompression compression) {
  DeviceReducerOptions options;
  options.bucket_bytes = 8 << 10;
  options.first_bucket_bytes = 1 << 10;
  options.compression = compression;
  options.block = 64;
  return options;
}

std::vector<float> random_gradient(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> gradient(count);
  for (float& value : gradient) value = normal(generator);
  return gradient;
}

struct Case {
  int ranks;
  DeviceCompression compression;
};

class DeviceReducerBits : public ::testing::TestWithParam<Case> {};

TEST_P(DeviceReducerBits, AreThoseOfTheHostsReducer) {
  const DeviceCompression compression = GetParam().compression;
  on_ranks(GetParam().ranks, "shm", [&](Communicator& host) {
    DeviceCommunicator device(host, host.rank());
    Model model(host.rank(), host.rank()), twin(host.rank(), host.rank());
    const DeviceReducerOptions options = small_buckets(compression);
    DeviceReducer reducer(host, device, model.parameters, options);
    ReducerOptions same;
    same.bucket_bytes = options.bucket_bytes;
    same.first_bucket_bytes = options.first_bucket_bytes;
    same.rebuild = false;
    same.hook = internal::host_hook(compression, options.block);
    Reducer reference(host, twin.parameters, same);
    ASSERT_EQ(reducer.plan(), reference.plan());
    ASSERT_GT(reducer.plan().buckets.size(), 3u);

    must(backend().select(device.device()));
    const Stream stream = must(backend().create_stream());
    for (unsigned step = 0; step < 3; ++step) {
      std::vector<std::vector<float>> gradients;
      for (std::size_t i = 0; i < model.parameters.size(); ++i) {
        gradients.push_back(random_gradient(
            model.count(i), 100 * step + 10 * static_cast<unsigned>(host.rank()) + static_cast<unsigned>(i)));
        const std::size_t bytes = gradients[i].size() * sizeof(float);
        must(backend().copy(reducer.gradient(i), gradients[i].data(), bytes, stream));
        std::memcpy(reference.gradient(i), gradients[i].data(), bytes);
        reducer.mark_ready(i, stream);
        reference.mark_ready(i);
      }
      reducer.wait(stream);
      reference.wait();
      must(backend().synchronize(stream));
      for (std::size_t i = 0; i < model.parameters.size(); ++i) {
        ASSERT_EQ(std::memcmp(reducer.gradient(i), reference.gradient(i), model.count(i) * sizeof(float)), 0)
            << "step " << step << ", parameter " << i;
      }
    }
    must(backend().destroy_stream(stream));
    device.finalize();
  });
}
INSTANTIATE_TEST_SUITE_P(All, DeviceReducerBits,
                         ::testing::Values(Case{1, DeviceCompression::f8e4m3},
                                           Case{2, DeviceCompression::none}, Case{2, DeviceCompression::bf16},
                                           Case{2, DeviceCompression::f16},
                                           Case{2, DeviceCompression::f8e4m3}, Case{2, DeviceCompression::i8},
                                           Case{3, DeviceCompression::f8e4m3},
                                           Case{3, DeviceCompression::f8e5m2}));

TEST(DeviceReducer, ValuesBecomeThoseOfRank0) {
  on_ranks(3, "shm", [](Communicator& host) {
    DeviceCommunicator device(host, 0);
    const Model model(host.rank(), 0);
    const DeviceReducer reducer(host, device, model.parameters, small_buckets(DeviceCompression::none));
    for (std::size_t i = 0; i < model.parameters.size(); ++i) {
      const auto* values = static_cast<const float*>(model.parameters[i].value);
      for (std::size_t k = 0; k < model.count(i); ++k) ASSERT_EQ(values[k], 1.0f);
    }
    device.finalize();
  });
}

/// Gradients come late, from several streams, marked by several threads in another order on each rank; the
/// calls all return before.
TEST(DeviceReducer, NoCallWaitsForTheDevice) {
  on_ranks(2, "shm", [](Communicator& host) {
    DeviceCommunicator device(host, 0);
    const Model model(host.rank(), 0);
    DeviceReducer reducer(host, device, model.parameters, small_buckets(DeviceCompression::none));
    constexpr std::size_t kStreams = 2;
    Stream streams[kStreams];
    for (Stream& stream : streams) stream = must(backend().create_stream());
    auto* const gate = static_cast<std::uint32_t*>(must(backend().allocate_pinned(sizeof(std::uint32_t))));
    std::deque<testing::PinnedFloats> gradients;  // Of all steps: to free waits for the other rank's streams.
    for (std::uint32_t step = 1; step <= 3; ++step) {
      const float mine = static_cast<float>(host.rank() + 1) * static_cast<float>(step);
      const std::size_t first = gradients.size();
      for (std::size_t i = 0; i < model.parameters.size(); ++i) gradients.emplace_back(model.count(i), mine);
      const auto mark_those_of = [&](std::size_t which) {
        must(backend().wait_value(gate, step, streams[which]));
        for (std::size_t k = 0; k < model.parameters.size(); ++k) {
          const std::size_t i = host.rank() == 0 ? k : model.parameters.size() - 1 - k;
          if (i % kStreams != which) continue;
          must(backend().copy(reducer.gradient(i), gradients[first + i].data(),
                              model.count(i) * sizeof(float), streams[which]));
          reducer.mark_ready(i, streams[which]);
        }
      };
      std::thread other([&] { mark_those_of(1); });
      mark_those_of(0);
      other.join();
      reducer.wait(streams[0]);
      EXPECT_FALSE(must(backend().idle(streams[0])));
      std::atomic_ref(*gate).store(step);
      must(backend().synchronize(streams[0]));
      for (std::size_t i = 0; i < model.parameters.size(); ++i) {
        const auto* values = static_cast<const float*>(reducer.gradient(i));
        for (std::size_t k = 0; k < model.count(i); ++k) {
          ASSERT_EQ(values[k], 1.5f * static_cast<float>(step));
        }
      }
    }
    host.barrier();
    for (const Stream stream : streams) must(backend().destroy_stream(stream));
    must(backend().free_pinned(gate));
    device.finalize();
  });
}

TEST(DeviceReducer, DestroyedInAnOpenStepTellsThePeers) {
  on_ranks(2, "shm", [&](Communicator& host) {
    DeviceCommunicator device(host, 0);
    const Model model(host.rank(), 0);
    DeviceReducer reducer(host, device, model.parameters, small_buckets(DeviceCompression::none));
    const Stream stream = must(backend().create_stream());
    ASSERT_TRUE(reducer.begin_step(1, stream));
    if (host.rank() == 0) {
      const auto [code, text] = error_of([&] {
        for (std::size_t i = 0; i < model.parameters.size(); ++i) reducer.mark_ready(i, stream);
        reducer.wait(stream);
        must(backend().synchronize(stream));
        device.wait();
      });
      EXPECT_EQ(code, ErrorCode::aborted);
      EXPECT_NE(text.find("in the midst of step 1"), std::string::npos) << text;
    }
    must(backend().destroy_stream(stream));
  });
}

TEST(DeviceReducer, MisuseFailsTheStepOnEveryRankAndTheNextOneIsGood) {
  on_ranks(2, "shm", [&](Communicator& host) {
    DeviceCommunicator device(host, 0);
    const Model model(host.rank(), 0);
    DeviceReducer reducer(host, device, model.parameters, small_buckets(DeviceCompression::none));
    const Stream stream = must(backend().create_stream());
    const auto mark_all = [&] {
      for (std::size_t i = 0; i < model.parameters.size(); ++i) reducer.mark_ready(i, stream);
    };
    EXPECT_EQ(error_of([&] { reducer.mark_ready(99, stream); }).first, ErrorCode::invalid_argument);
    if (host.rank() == 0) {
      reducer.mark_ready(1, stream);
    } else {
      mark_all();
    }
    auto [code, text] = error_of([&] { reducer.wait(stream); });
    EXPECT_EQ(code, ErrorCode::invalid_argument);
    EXPECT_NE(text.find("step 1: rank 0 did not mark 6 of 7 gradients: \"layer0\" (0)"), std::string::npos)
        << text;

    mark_all();
    if (host.rank() == 1) {
      text = error_of([&] { reducer.mark_ready(2, stream); }).second;
      EXPECT_NE(text.find("\"layer2\" was already marked"), std::string::npos) << text;
    }
    text = error_of([&] { reducer.wait(stream); }).second;
    EXPECT_NE(text.find("rank 1 marked \"layer2\" (2) once too often"), std::string::npos) << text;

    must(backend().fill(reducer.gradient(0), 0, model.count(0) * sizeof(float), stream));
    mark_all();
    reducer.wait(stream);
    must(backend().synchronize(stream));
    EXPECT_EQ(static_cast<const float*>(reducer.gradient(0))[0], 0.0f);
    must(backend().destroy_stream(stream));
    device.finalize();
  });
}

TEST(DeviceReducer, MemoryForGradientsThatNothingReadsIsRefusedOnAllRanks) {
  on_ranks(2, "shm", [](Communicator& host) {
    DeviceCommunicator device(host, 0);
    const Model model(host.rank(), 0);
    std::vector<Parameter> list = model.parameters;
    if (host.rank() == 1) list[2].gradient = list[2].value;
    const auto options = small_buckets(DeviceCompression::none);
    const auto expect_refusal = [&](const std::pair<ErrorCode, std::string>& error) {
      EXPECT_EQ(error.first, host.rank() == 1 ? ErrorCode::invalid_argument : ErrorCode::refused);
      EXPECT_TRUE(error.second.starts_with("DeviceReducer: ")) << error.second;
      EXPECT_NE(error.second.find("\"layer2\""), std::string::npos) << error.second;
      EXPECT_NE(error.second.find("has memory for its gradient, which nothing reads"), std::string::npos)
          << error.second;
    };
    expect_refusal(error_of([&] { DeviceReducer(host, device, list, options); }));
    DeviceReducer reducer(host, device, std::span(list).first(2), options);
    expect_refusal(error_of([&] { reducer.add_parameters(std::span(list).subspan(2)); }));
    device.finalize();
  });
}

TEST(DeviceReducer, ACompressionWithoutMeaningIsRefused) {
  on_ranks(2, "shm", [](Communicator& host) {
    DeviceCommunicator device(host, 0);
    const Model model(host.rank(), 0);
    const auto [code, text] = error_of([&] {
      DeviceReducer(host, device, model.parameters, small_buckets(static_cast<DeviceCompression>(77)));
    });
    EXPECT_EQ(code, ErrorCode::invalid_argument);
    EXPECT_NE(text.find("compression is 77"), std::string::npos) << text;
  });
}

TEST(DeviceReducer, ACompressionWithoutMeaningOnOneRankIsRefusedOnAll) {
  on_ranks(2, "shm", [](Communicator& host) {
    DeviceCommunicator device(host, 0);
    const Model model(host.rank(), 0);
    const auto compression = host.rank() == 1 ? static_cast<DeviceCompression>(77) : DeviceCompression::none;
    const auto [code, text] =
        error_of([&] { DeviceReducer(host, device, model.parameters, small_buckets(compression)); });
    EXPECT_EQ(code, host.rank() == 1 ? ErrorCode::invalid_argument : ErrorCode::refused);
    EXPECT_NE(text.find("compression is 77"), std::string::npos) << text;
  });
}

TEST(DeviceReducer, RanksWithOtherOptionsAreRefused) {
  on_ranks(2, "shm", [](Communicator& host) {
    DeviceCommunicator device(host, 0);
    const Model model(host.rank(), 0);
    const auto compression = host.rank() == 0 ? DeviceCompression::bf16 : DeviceCompression::f8e4m3;
    EXPECT_EQ(
        error_of([&] { DeviceReducer(host, device, model.parameters, small_buckets(compression)); }).first,
        ErrorCode::mismatch);
  });
}

}  // namespace
}  // namespace lockstep
