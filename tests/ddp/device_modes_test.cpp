// The modes of a DeviceReducer give what those of the host's Reducer give, bit for bit, over the host
// backend.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "lib/device/backend.hpp"
#include "lockstep/ddp.hpp"
#include "lockstep/ddp/device_reducer.hpp"
#include "tests/engine/local_ranks.hpp"
#include "tests/support/must.hpp"

namespace lockstep {
namespace {

using internal::testing::must;
using testing::error_of;
using testing::on_ranks;

internal::Backend& backend() { return *must(internal::device_backend()); }

constexpr std::size_t kParameters = 5;
constexpr std::size_t count_of(std::size_t i) { return 300 + 700 * i; }

/// A reducer on a device and one on the host, of the same parameters and options.
struct Twins {
  Twins(Communicator& h, DeviceReducerOptions options)
      : host(h), device(h, 0), memory(kParameters), values(kParameters) {
    options.bucket_bytes = 8 << 10;
    options.first_bucket_bytes = 1 << 10;
    ReducerOptions same;
    same.bucket_bytes = options.bucket_bytes;
    same.first_bucket_bytes = options.first_bucket_bytes;
    same.weighted = options.weighted;
    same.find_unused = options.find_unused;
    same.uneven = options.uneven;
    same.check_finite = options.check_finite;
    same.rebuild = false;
    std::vector<Parameter> there, here;
    for (std::size_t i = 0; i < kParameters; ++i) {
      memory[i] = static_cast<float*>(allocate_device(count_of(i) * sizeof(float), 0));
      values[i].assign(count_of(i), 1.0f);
      std::copy(values[i].begin(), values[i].end(), memory[i]);
      const std::string name = "p" + std::to_string(i);
      there.push_back({name, DataType::f32, {count_of(i)}, memory[i], nullptr});
      here.push_back({name, DataType::f32, {count_of(i)}, values[i].data(), nullptr});
    }
    on_device = std::make_unique<DeviceReducer>(host, device, there, options);
    on_host = std::make_unique<Reducer>(host, here, same);
    stream = must(backend().create_stream());
  }
  ~Twins() {
    on_device.reset();
    must(backend().destroy_stream(stream));
    for (float* const block : memory) free_device(block);
    device.finalize();
  }

  /// Both get the same gradient for parameter i, added to what is there if `adds`.
  void compute(std::size_t i, unsigned seed, bool adds = false) {
    auto* const gradient = static_cast<float*>(on_host->gradient(i));
    for (std::size_t k = 0; k < count_of(i); ++k) {
      const float value =
          std::sin(static_cast<float>(seed * 31 + i * 7 + k) * 0.37f) * static_cast<float>(host.rank() + 1);
      gradient[k] = adds ? gradient[k] + value : value;
    }
    put(i);
  }
  void put(std::size_t i) {
    must(backend().copy(on_device->gradient(i), on_host->gradient(i), count_of(i) * sizeof(float), stream));
    must(backend().synchronize(stream));
  }
  void mark(std::size_t i) {
    on_device->mark_ready(i, stream);
    on_host->mark_ready(i);
  }
  void wait() {
    on_device->wait(stream);
    on_host->wait();
  }
  void expect_equal(const char* when) {
    must(backend().synchronize(stream));
    for (std::size_t i = 0; i < kParameters; ++i) {
      ASSERT_EQ(std::memcmp(on_device->gradient(i), on_host->gradient(i), count_of(i) * sizeof(float)), 0)
          << when << ", parameter " << i << ", rank " << host.rank();
    }
  }

  Communicator& host;
  DeviceCommunicator device;
  std::vector<float*> memory;
  std::vector<std::vector<float>> values;
  std::unique_ptr<DeviceReducer> on_device;
  std::unique_ptr<Reducer> on_host;
  Stream stream = nullptr;
};

TEST(DeviceModes, NoSyncKeepsGradientsHereUntilTheLastMicroBatch) {
  on_ranks(2, "shm", [](Communicator& host) {
    Twins twins(host, {});
    for (unsigned step = 0; step < 2; ++step) {
      {
        const auto pause = twins.on_device->no_sync();
        const auto same = twins.on_host->no_sync();
        for (std::size_t i = 0; i < kParameters; ++i) {
          twins.compute(i, step);
          twins.mark(i);
        }
        twins.wait();
      }
      for (std::size_t i = 0; i < kParameters; ++i) {
        twins.compute(i, step + 10, true);
        twins.mark(i);
      }
      twins.wait();
      twins.expect_equal("after the last micro-batch");
    }
  });
}

TEST(DeviceModes, UnusedGradientsCountAsZero) {
  on_ranks(3, "shm", [](Communicator& host) {
    DeviceReducerOptions options;
    options.find_unused = true;
    Twins twins(host, options);
    for (unsigned step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < kParameters; ++i) {
        twins.compute(i, step);  // Of those that are not marked nothing may be left.
        if (i == 1) continue;
        if ((i + step + static_cast<unsigned>(host.rank())) % 3 != 0) {
          twins.mark(i);
        } else if (step == 2) {
          twins.on_device->mark_unused(i, twins.stream);
          twins.on_host->mark_unused(i);
        }
      }
      twins.wait();
      twins.expect_equal("a step with unused gradients");
      for (std::size_t i = 0; i < kParameters; ++i)
        EXPECT_EQ(twins.on_device->used(i), twins.on_host->used(i)) << i;
      EXPECT_FALSE(twins.on_device->used(1));
    }
  });
}

TEST(DeviceModes, WeightsFollowTheSamplesAndRanksWithoutDataGoOn) {
  on_ranks(3, "shm", [](Communicator& host) {
    DeviceReducerOptions options;
    options.weighted = true;
    Twins twins(host, options);
    const std::uint64_t samples[][3] = {{4, 4, 4}, {8, 2, 5}, {3, 0, 1}, {0, 0, 7}};
    EXPECT_EQ(error_of([&] { twins.on_device->mark_ready(0, twins.stream); }).first,
              ErrorCode::invalid_argument);
    for (const auto& of_step : samples) {
      const std::uint64_t mine = of_step[host.rank()];
      ASSERT_TRUE(twins.on_device->begin_step(mine, twins.stream));
      ASSERT_TRUE(twins.on_host->begin_step(mine));
      for (std::size_t i = 0; i < kParameters && mine > 0; ++i) {
        twins.compute(i, 5);
        twins.mark(i);
      }
      twins.wait();
      twins.expect_equal("weighted");
    }
    EXPECT_FALSE(twins.on_device->begin_step(0, twins.stream));
    EXPECT_FALSE(twins.on_host->begin_step(0));
  });
}

TEST(DeviceModes, WhatIsNotFiniteIsNamedAndStaysOutOfTheSums) {
  on_ranks(2, "shm", [](Communicator& host) {
    DeviceReducerOptions options;
    options.check_finite = true;
    Twins twins(host, options);
    for (unsigned step = 0; step < 3; ++step) {
      for (std::size_t i = 0; i < kParameters; ++i) {
        twins.compute(i, step);
        if (step == 1 && i == 3 && host.rank() == 1) {
          static_cast<float*>(twins.on_host->gradient(i))[17] = std::numeric_limits<float>::infinity();
          twins.put(i);
        }
        twins.mark(i);
      }
      if (step != 1) {
        twins.wait();
        twins.expect_equal("a finite step");
        continue;
      }
      const auto parameter_of = [](const auto& wait) {
        try {
          wait();
        } catch (const NonFiniteGradient& error) {
          EXPECT_EQ(error.culprit(), 1) << error.what();
          return error.parameter();
        }
        return kParameters;
      };
      EXPECT_EQ(parameter_of([&] { twins.on_device->wait(twins.stream); }), 3u);
      EXPECT_EQ(parameter_of([&] { twins.on_host->wait(); }), 3u);
      must(backend().synchronize(twins.stream));
      const auto* const sums = static_cast<const float*>(twins.on_device->gradient(3));
      for (std::size_t k = 0; k < count_of(3); ++k) ASSERT_TRUE(std::isfinite(sums[k]));
    }
  });
}

TEST(DeviceModes, ClippingScalesToTheGlobalNorm) {
  on_ranks(2, "shm", [](Communicator& host) {
    Twins twins(host, {});
    auto* const norm = static_cast<double*>(must(backend().allocate_pinned(sizeof(double))));
    for (const double most : {1e6, 0.5}) {
      for (std::size_t i = 0; i < kParameters; ++i) {
        twins.compute(i, 3);
        twins.mark(i);
      }
      twins.wait();
      twins.on_device->clip_gradients(most, twins.stream, norm);
      must(backend().synchronize(twins.stream));
      const double expected = twins.on_host->clip_gradients(most);
      EXPECT_NEAR(*norm, expected, 1e-9 * expected);
      for (std::size_t i = 0; i < kParameters; ++i) {
        const auto* const device = static_cast<const float*>(twins.on_device->gradient(i));
        const auto* const there = static_cast<const float*>(twins.on_host->gradient(i));
        for (std::size_t k = 0; k < count_of(i); ++k)
          ASSERT_NEAR(device[k], there[k], 1e-6 * std::abs(there[k])) << most;
      }
      double all = 0, least = *norm;  // Bits are equal on all ranks.
      host.all_reduce(norm, &all, 1, DataType::f64, ReduceOp::max);
      host.all_reduce(norm, &least, 1, DataType::f64, ReduceOp::min);
      EXPECT_EQ(all, least);
    }
    EXPECT_EQ(error_of([&] { twins.on_device->clip_gradients(0, twins.stream); }).first,
              ErrorCode::invalid_argument);
    must(backend().free_pinned(norm));
  });
}

}  // namespace
}  // namespace lockstep
